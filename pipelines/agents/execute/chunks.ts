import type { ClaimedRun, RunFailure } from '../runs/run-row.ts';
import type { Chunk } from '../workers/worker-pool.ts';

/**
 * The first event of each attempt. Newer SDKs read `thread_id`; a temporary thread is not shown to clients. Source: SPEC 6.
 */
export function metadataChunk({ runId, threadId, graphId, attempt, kwargs }: ClaimedRun): Chunk {
  return createChunk('metadata', {
    run_id: runId,
    attempt,
    graph_id: graphId,
    ...(!kwargs.temporary && { thread_id: threadId }),
  });
}

/** The last event of a failed attempt before the end event. */
export function errorChunk(failure: RunFailure): Chunk {
  return createChunk('error', failure);
}

function createChunk(name: string, value: object): Chunk {
  return { mode: name, event: name, namespace: '', data: Buffer.from(JSON.stringify(value)) };
}
