import { pathToFileURL } from 'node:url';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { type CompiledGraph, isCompiledGraph, isGraphBuilder, isGraphWrapper } from './compiled-graph.ts';
import { type GraphNodes, nodesOf } from './graph-nodes.ts';
import type { ExportReference, GraphSource } from './graphs-file.ts';

/** What a module exports for a graph: the graph, or a function that makes it for a config. */
export interface LoadedGraph {
  readonly graphId: string;
  /** Undefined where they are not known before an instance is made, and of a graph that is elsewhere. */
  readonly nodes?: GraphNodes | undefined;
  /**
   * The graph for one run or question; its checkpointer and store may be set without touching another's. A function of the project
   * is called with `config` each time.
   *
   * @throws GRAPH_UNUSABLE where it makes no graph; what the function throws.
   */
  instance(config: object): Promise<CompiledGraph>;
}

/**
 * Imports a graph's module and looks at the export that the langgraph.json names: a compiled graph, an agent of `langchain`, a builder, a
 * promise of one of these, or a function of config that returns any of them. Runs code of the project.
 *
 * @throws GRAPH_UNUSABLE that says which and why.
 */
export async function loadGraph(source: GraphSource): Promise<LoadedGraph> {
  const { graphId } = source;
  const unusable = (reason: string, cause?: unknown) =>
    fault('GRAPH_UNUSABLE', { graph: graphId, reason }, cause === undefined ? {} : { cause });
  if (source.path.endsWith('.py')) throw unusable(`${source.path} is Python: graphs are JavaScript or TypeScript here`);
  let exported: unknown;
  try {
    exported = await importExport(source);
  } catch (error) {
    throw unusable(`${source.path} cannot be loaded: ${describe(error)}`, error);
  }
  const where = `the export '${source.name}' of ${source.path}`;
  if (exported === undefined) throw unusable(`${where} does not exist`);
  if (typeof exported === 'function') {
    const make = exported as (config: object) => unknown;
    return {
      graphId,
      instance: async (config) => {
        const made = compiled(await make(config));
        if (made === undefined) throw unusable(`${where} did not return a graph`);
        return copyOf(made);
      },
    };
  }
  const graph = compiled(exported);
  if (graph === undefined) throw unusable(`${where} is not a graph, a builder of one, or a function that returns one`);
  return { graphId, nodes: nodesOf(graph), instance: async () => copyOf(graph) };
}

/** Undefined where the module has no such export. Waits where that is a promise. @throws what importing throws. */
export async function importExport({ path, name }: ExportReference): Promise<unknown> {
  const module: Record<string, unknown> = await import(pathToFileURL(path).href);
  if (name in module) return await module[name];
  // What a CommonJS module exports beyond what Node sees from outside stands in its default export.
  const whole = module.default;
  return typeof whole === 'object' && whole !== null && name in whole
    ? await (whole as Record<string, unknown>)[name]
    : undefined;
}

function compiled(value: unknown): CompiledGraph | undefined {
  if (isCompiledGraph(value)) return value;
  if (isGraphWrapper(value)) return value.graph;
  if (!isGraphBuilder(value)) return undefined;
  const graph = value.compile();
  return isCompiledGraph(graph) ? graph : undefined;
}

/** All of the graph, by reference; what is set on it stays here. */
function copyOf(graph: CompiledGraph): CompiledGraph {
  return Object.create(graph) as CompiledGraph;
}

function describe(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}
