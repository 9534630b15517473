import { Type } from 'typebox';
import type { MadeRun } from '../../../pipelines/agents/runs/request-run.ts';
import type { Run } from '../../../pipelines/agents/runs/run.ts';
import { Uuid } from '../../server/formats.ts';
import type { FollowedRun } from '../streaming/answer-of-run.ts';

export const ThreadParams = Type.Object({ thread_id: Uuid() });
export const ThreadRunParams = Type.Object({ thread_id: Uuid(), run_id: Uuid() });

/** Returns the ids in lower case, as they are stored and streamed. */
export function idsOf(params: { readonly thread_id: string; readonly run_id: string }) {
  return { threadId: params.thread_id.toLowerCase(), runId: params.run_id.toLowerCase() };
}

/**
 * Returns the path of a run: below its thread or, if the thread was created only for the run, below `/runs`. Clients
 * parse the ids from it.
 */
export function runPath({ thread_id, run_id }: Pick<Run, 'thread_id' | 'run_id'>, stateless: boolean): string {
  return stateless ? `/runs/${run_id}` : `/threads/${thread_id}/runs/${run_id}`;
}

/**
 * Returns how the client that created a run follows it. A client can reconnect to a stream without a gap if its events
 * are kept, from the beginning if it received none. A waiting client can reconnect if the run is kept.
 */
export function followed(
  { run, deploymentId, cancelOnDisconnect }: MadeRun,
  kind: 'thread' | 'stateless',
  how: 'stream' | 'join',
): FollowedRun {
  const path = runPath(run, kind === 'stateless');
  const streamed = run.kwargs.resumable ? `${path}/stream?last_event_id=-1` : undefined;
  const joined = kind === 'thread' ? `${path}/join` : undefined;
  return {
    deploymentId,
    threadId: run.thread_id,
    runId: run.run_id,
    cancelOnDisconnect,
    path,
    reconnectTo: how === 'stream' ? streamed : joined,
  };
}
