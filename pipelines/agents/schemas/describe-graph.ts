import type { GraphSchemas } from '../requests/schemas.ts';
import { parseAnswer } from '../workers/front/parse-answer.ts';
import type { WorkerPool } from '../workers/front/worker-pool.ts';
import { type GraphTypes, isComplete } from './read-types-in-background.ts';

export interface DescribeGraphDeps {
  readonly pool: Pick<WorkerPool, 'query'>;
  readonly types: GraphTypes;
}

/**
 * Returns the schemas of an assistant's graph. A schema comes from the graph at run time, else from its TypeScript
 * types; otherwise it is null. Waits at most `maxWaitMs` while the types are being read.
 *
 * @throws GRAPH_NOT_FOUND, GRAPH_UNUSABLE, GRAPH_WORKER_BUSY, GRAPH_FAILED
 */
export async function describeGraph(
  { pool, types }: DescribeGraphDeps,
  graphId: string,
  config: object,
  maxWaitMs = 0,
): Promise<GraphSchemas & { readonly graph_id: string }> {
  const known: GraphSchemas = parseAnswer(await pool.query({ kind: 'schemas', graphId, config }));
  const typed = await types.waitFor(graphId, isComplete(known) ? 0 : maxWaitMs);
  return { graph_id: graphId, ...mergeSchemas(known, typed?.schemas) };
}

/** Returns the schemas of a graph's subgraphs, by namespace. @throws the same errors as {@link describeGraph}. */
export async function describeSubgraphs(
  { pool, types }: DescribeGraphDeps,
  graphId: string,
  selection: { readonly config: object; readonly recurse: boolean; readonly namespace?: string },
  maxWaitMs: number,
): Promise<Record<string, GraphSchemas>> {
  const known: Record<string, GraphSchemas> = parseAnswer(
    await pool.query({ kind: 'subgraphs', graphId, ...selection }),
  );
  const typed = await types.waitFor(graphId, Object.values(known).every(isComplete) ? 0 : maxWaitMs);
  return Object.fromEntries(
    Object.entries(known).map(([namespace, schemas]) => [
      namespace,
      mergeSchemas(schemas, typed?.subgraphs[namespace]),
    ]),
  );
}

function mergeSchemas(known: GraphSchemas, typed: GraphSchemas | undefined): GraphSchemas {
  return {
    input_schema: known.input_schema ?? typed?.input_schema ?? null,
    output_schema: known.output_schema ?? typed?.output_schema ?? null,
    state_schema: known.state_schema ?? typed?.state_schema ?? null,
    config_schema: known.config_schema ?? typed?.config_schema ?? null,
    context_schema: known.context_schema ?? typed?.context_schema ?? null,
  };
}
