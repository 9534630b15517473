import type { RunFailure } from '../runs/run-row.ts';
import type { Chunk } from '../workers/worker-pool.ts';

/** The first event of every attempt. Source: SPEC 6. */
export function metadataChunk(runId: string, attempt: number): Chunk {
  return chunkOf('metadata', { run_id: runId, attempt });
}

/** The last event of an attempt that failed, before its end. */
export function errorChunk(failure: RunFailure): Chunk {
  return chunkOf('error', failure);
}

function chunkOf(name: string, value: object): Chunk {
  return { mode: name, event: name, namespace: '', data: Buffer.from(JSON.stringify(value)) };
}
