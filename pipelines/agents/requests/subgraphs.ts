import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import type { GraphRequest } from '../workers/worker-pool.ts';
import { type GraphSchemas, readSchemas } from './schemas.ts';

/** Returns the schemas of a graph's subgraphs, by namespace. */
export async function readSubgraphSchemas(
  graph: CompiledGraph,
  { namespace, recurse }: Extract<GraphRequest, { kind: 'subgraphs' }>,
): Promise<Record<string, GraphSchemas>> {
  const found: Record<string, GraphSchemas> = {};
  for await (const [name, subgraph] of graph.getSubgraphsAsync(namespace, recurse)) found[name] = readSchemas(subgraph);
  return found;
}
