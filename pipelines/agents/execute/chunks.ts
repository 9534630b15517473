import type { ClaimedRun, RunFailure } from '../runs/run-row.ts';
import type { Chunk } from '../workers/worker-pool.ts';

/** The first event of every attempt. Source: SPEC 6; for the thread, where that is its clients', the newer SDKs. */
export function metadataChunk({ runId, threadId, graphId, attempt, kwargs }: ClaimedRun): Chunk {
  return chunkOf('metadata', {
    run_id: runId,
    attempt,
    graph_id: graphId,
    ...(!kwargs.temporary && { thread_id: threadId }),
  });
}

/** The last event of an attempt that failed, before its end. */
export function errorChunk(failure: RunFailure): Chunk {
  return chunkOf('error', failure);
}

function chunkOf(name: string, value: object): Chunk {
  return { mode: name, event: name, namespace: '', data: Buffer.from(JSON.stringify(value)) };
}
