import type { schemaMetaRegistry } from '@langchain/langgraph/zod';
import {
  getConfigTypeSchema,
  getInputTypeSchema,
  getOutputTypeSchema,
  getStateTypeSchema,
} from '@langchain/langgraph/zod/schema';
import type { CompiledGraph } from '../graphs/compiled-graph.ts';

export interface GraphSchemas {
  readonly input_schema: unknown;
  readonly output_schema: unknown;
  readonly state_schema: unknown;
  readonly config_schema: unknown;
  readonly context_schema: unknown;
}

/**
 * JSON schemas that a graph knows at run time, from zod or the library's own state schemas. Null where only the TypeScript compiler
 * would know.
 */
export function schemasOf(graph: CompiledGraph): GraphSchemas {
  // A project may have its own copy of the library. What `withLangGraph` said of a schema is in the registry of that copy.
  const registry = (graph.builder as { readonly _metaRegistry?: typeof schemaMetaRegistry } | undefined)?._metaRegistry;
  const known = (read: (graph: unknown, registry?: typeof schemaMetaRegistry) => unknown) => {
    try {
      return read(graph, registry) ?? null;
    } catch {
      // A schema with parts that JSON Schema cannot say, such as a transform.
      return null;
    }
  };
  const context = known(getConfigTypeSchema);
  return {
    input_schema: known(getInputTypeSchema),
    output_schema: known(getOutputTypeSchema),
    state_schema: known(getStateTypeSchema),
    config_schema: context,
    context_schema: context,
  };
}
