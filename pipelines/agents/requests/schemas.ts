import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import type { schemaMetaRegistry } from '@langchain/langgraph/zod';
import * as ownConverter from '@langchain/langgraph/zod/schema';
import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import type { GraphRequest } from '../workers/messages.ts';

export interface GraphSchemas {
  readonly input_schema: unknown;
  readonly output_schema: unknown;
  readonly state_schema: unknown;
  readonly config_schema: unknown;
  readonly context_schema: unknown;
}

/**
 * Returns the JSON schemas that a graph has at run time, from zod or from LangGraph's state schemas. A schema that
 * exists only as a TypeScript type is null.
 *
 * @param path the module of the graph.
 */
export async function readSchemas(graph: CompiledGraph, path: string): Promise<GraphSchemas> {
  const { getConfigTypeSchema, getInputTypeSchema, getOutputTypeSchema, getStateTypeSchema } =
    await importConverter(path);
  // The metadata of `withLangGraph` is in the registry of the project's LangGraph, which may be another copy than ours.
  const registry = (graph.builder as { readonly _metaRegistry?: typeof schemaMetaRegistry } | undefined)?._metaRegistry;
  const readSchema = (read: (graph: unknown, registry?: typeof schemaMetaRegistry) => unknown) => {
    try {
      return read(graph, registry) ?? null;
    } catch {
      // The schema has parts without a JSON Schema equivalent, such as a transform.
      return null;
    }
  };
  const context = readSchema(getConfigTypeSchema);
  return {
    input_schema: readSchema(getInputTypeSchema),
    output_schema: readSchema(getOutputTypeSchema),
    state_schema: readSchema(getStateTypeSchema),
    config_schema: context,
    context_schema: context,
  };
}

/**
 * Imports the functions that convert schemas from the LangGraph of a project, because the converter of one release of
 * zod loses types and descriptions of schemas of another. Returns Runlake's own if the project has none.
 */
async function importConverter(path: string): Promise<typeof ownConverter> {
  try {
    const commonJs = createRequire(path).resolve('@langchain/langgraph/zod/schema');
    // The ES module beside it uses the same copy of zod as the graph; before 4.2, the CommonJS copy has no descriptions.
    return (await import(pathToFileURL(commonJs.replace(/\.cjs$/, '.js')).href)) as typeof ownConverter;
  } catch {
    return ownConverter;
  }
}

/** Returns the schemas of a graph's subgraphs, by namespace. @param path the module of the graph. */
export async function readSubgraphSchemas(
  graph: CompiledGraph,
  path: string,
  { namespace, recurse }: Extract<GraphRequest, { kind: 'subgraphs' }>,
): Promise<Record<string, GraphSchemas>> {
  const found: Record<string, GraphSchemas> = {};
  for await (const [name, subgraph] of graph.getSubgraphsAsync(namespace, recurse)) {
    found[name] = await readSchemas(subgraph, path);
  }
  return found;
}
