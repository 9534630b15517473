import { Type } from 'typebox';
import type { MadeRun } from '../../../pipelines/agents/runs/request-run.ts';
import type { Run } from '../../../pipelines/agents/runs/run.ts';
import { Uuid } from '../../server/formats.ts';
import type { FollowedRun } from '../streaming/answer-of-run.ts';

export const ThreadParams = Type.Object({ thread_id: Uuid() });
export const ThreadRunParams = Type.Object({ thread_id: Uuid(), run_id: Uuid() });

/** Ids in the form in which they are stored and streamed. */
export function idsOf(params: { readonly thread_id: string; readonly run_id: string }) {
  return { threadId: params.thread_id.toLowerCase(), runId: params.run_id.toLowerCase() };
}

/** Where a run is to be found: on its thread or, where that was made for it alone, by itself. Clients read its ids from it. */
export function runPath({ thread_id, run_id }: Pick<Run, 'thread_id' | 'run_id'>, stateless: boolean): string {
  return stateless ? `/runs/${run_id}` : `/threads/${thread_id}/runs/${run_id}`;
}

/**
 * How the client that made a run follows it. A stream comes back without a loss where its events are kept: from the beginning, if not
 * one was received. Who waits comes back to a run that is kept.
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
    comesBackTo: how === 'stream' ? streamed : joined,
  };
}
