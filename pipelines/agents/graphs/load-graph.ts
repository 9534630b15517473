import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { formatProjectError } from '../workers/serialized-error.ts';
import { type CompiledGraph, isCompiledGraph, isGraphBuilder, isGraphWrapper } from './compiled-graph.ts';
import { type GraphNodes, readNodes } from './graph-nodes.ts';
import type { ExportReference, GraphSource, GraphsFile } from './graphs-file.ts';

/** A graph export of a module: a graph, or a function that creates one for a config. */
export interface LoadedGraph {
  /** Module that exports the graph. */
  readonly path: string;
  /**
   * Nodes of the graph. Undefined for a remote graph, and for a function, because its graph is unknown before the call.
   */
  readonly nodes?: GraphNodes | undefined;
  /**
   * Returns the graph for one run or query. The caller can set its checkpointer and store without an effect on other
   * instances. If the export is a function, each call of `instance` calls it with `config`.
   *
   * @throws GRAPH_UNUSABLE if the function returns no graph; errors of the function.
   */
  instance(config: object): Promise<CompiledGraph>;
}

/**
 * Imports the module of a graph, which executes project code, and loads the export that the langgraph.json names: a
 * compiled graph, an agent of `langchain`, a builder, a promise of one of these, or a function of the config that
 * returns one of them.
 *
 * @throws GRAPH_UNUSABLE with the export and the reason.
 */
export async function loadGraph(source: GraphSource): Promise<LoadedGraph> {
  const { graphId, path } = source;
  const createUnusableGraphError = (reason: string, cause?: unknown) =>
    runlakeError('GRAPH_UNUSABLE', { graph: graphId, reason }, cause === undefined ? {} : { cause });
  if (path.endsWith('.py'))
    throw createUnusableGraphError(`${path} is Python: graphs must be JavaScript or TypeScript`);
  let exported: unknown;
  try {
    exported = await importExport(source);
  } catch (error) {
    throw createUnusableGraphError(`${path} cannot be loaded: ${formatProjectError(error)}`, error);
  }
  const where = `the export '${source.name}' of ${path}`;
  if (exported === undefined) throw createUnusableGraphError(`${where} does not exist`);
  if (typeof exported === 'function') {
    const make = exported as (config: object) => unknown;
    return {
      path,
      instance: async (config) => {
        const made = toCompiledGraph(await make(config));
        if (made === undefined) throw createUnusableGraphError(`${where} did not return a graph`);
        return made.withConfig({});
      },
    };
  }
  const graph = toCompiledGraph(exported);
  if (graph === undefined)
    throw createUnusableGraphError(`${where} is not a graph, a builder of one, or a function that returns one`);
  return { path, nodes: readNodes(graph), instance: async () => graph.withConfig({}) };
}

/**
 * Imports a module and returns the export, awaited; undefined if the module has no such export. @throws errors of the
 * import.
 */
export async function importExport({ path, name }: ExportReference): Promise<unknown> {
  const module: Record<string, unknown> = await import(pathToFileURL(path).href);
  if (name in module) return await module[name];
  // Node does not detect all export names of a CommonJS module; its default export contains all of them.
  const whole = module.default;
  return typeof whole === 'object' && whole !== null && name in whole
    ? await (whole as Record<string, unknown>)[name]
    : undefined;
}

function toCompiledGraph(value: unknown): CompiledGraph | undefined {
  if (isCompiledGraph(value)) return value;
  if (isGraphWrapper(value)) return value.graph;
  if (!isGraphBuilder(value)) return undefined;
  const graph = value.compile();
  return isCompiledGraph(graph) ? graph : undefined;
}

const libraryPackage = '@langchain/langgraph';

/** Description of the LangGraph versions that Runlake is tested with. */
export const testedLibraryVersions = '1.x';

const isTested = (version: string) => /^1\./.test(version);

/** Returns the distinct copies of LangGraph that the graphs of the file load and whose version is untested. */
export async function findUntestedLibraries({ graphs }: GraphsFile): Promise<{ path: string; version: string }[]> {
  const found = new Map<string, string>();
  for (const folder of new Set(graphs.map(({ path }) => dirname(path)))) {
    const copy = await findLibraryCopy(folder);
    if (copy !== undefined && !isTested(copy.version)) found.set(copy.path, copy.version);
  }
  return [...found].map(([path, version]) => ({ path, version }));
}

/** Returns the LangGraph version that the first graph of the file loads; undefined if none is found. */
export async function findLibraryVersion({ graphs }: Pick<GraphsFile, 'graphs'>): Promise<string | undefined> {
  const [first] = graphs;
  return first && (await findLibraryCopy(dirname(first.path)))?.version;
}

/** Finds the package as Node does: in this folder, then in each parent folder. */
async function findLibraryCopy(folder: string): Promise<{ path: string; version: string } | undefined> {
  const path = join(folder, 'node_modules', libraryPackage);
  const version = await readVersion(join(path, 'package.json')).catch(() => undefined);
  if (version !== undefined) return { path, version };
  const parentFolder = dirname(folder);
  return parentFolder === folder ? undefined : findLibraryCopy(parentFolder);
}

const maxPackageJsonBytes = 1024 * 1024;

/**
 * Reads the version in a package.json. The project is untrusted, and the file may be a pipe, which would block a thread of
 * this process for ever, or a device without an end.
 */
async function readVersion(path: string): Promise<string | undefined> {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const status = await file.stat();
    if (!status.isFile() || status.size > maxPackageJsonBytes) return undefined;
    return String((JSON.parse(await file.readFile('utf8')) as { version?: unknown }).version);
  } finally {
    await file.close();
  }
}
