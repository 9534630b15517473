import type { schemaMetaRegistry } from '@langchain/langgraph/zod';
import {
  getConfigTypeSchema,
  getInputTypeSchema,
  getOutputTypeSchema,
  getStateTypeSchema,
} from '@langchain/langgraph/zod/schema';
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
 */
export function readSchemas(graph: CompiledGraph): GraphSchemas {
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

/** Returns the schemas of a graph's subgraphs, by namespace. */
export async function readSubgraphSchemas(
  graph: CompiledGraph,
  { namespace, recurse }: Extract<GraphRequest, { kind: 'subgraphs' }>,
): Promise<Record<string, GraphSchemas>> {
  const found: Record<string, GraphSchemas> = {};
  for await (const [name, subgraph] of graph.getSubgraphsAsync(namespace, recurse)) found[name] = readSchemas(subgraph);
  return found;
}
