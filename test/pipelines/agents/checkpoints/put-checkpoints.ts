import { type Checkpoint, emptyCheckpoint } from '@langchain/langgraph-checkpoint';
import { LeasedSaver } from '../../../../pipelines/agents/checkpoints/leased-saver.ts';
import type { ActiveRun, Threads } from './threads.ts';

export const configOf = (run: { key: string }, checkpoint_id?: string) => ({
  configurable: { thread_id: run.key, checkpoint_ns: '', ...(checkpoint_id !== undefined && { checkpoint_id }) },
});
export const metadata = { source: 'loop' as const, step: 1, parents: {} };

export function makeCheckpoint(saver: LeasedSaver, values: Record<string, unknown>): Checkpoint {
  const channel_versions = Object.fromEntries(
    Object.keys(values).map((name) => [name, saver.getNextVersion(undefined)]),
  );
  return { ...emptyCheckpoint(), channel_values: values, channel_versions };
}
export const put = (run: Pick<ActiveRun, 'key' | 'saver'>, checkpoint: Checkpoint, more: object = {}) =>
  run.saver.put(configOf(run), checkpoint, { ...metadata, ...more }, checkpoint.channel_versions);

const never = 2 ** 31 - 1;
/** Starts a run whose saver answers before its writes are stored. `sent` collects the names of its statements. */
export async function beginEarly(threads: Threads, { batchDelayMs = never }: { readonly batchDelayMs?: number } = {}) {
  const run = await threads.startRun(await threads.newThread());
  const sent: (string | undefined)[] = [];
  const pool = {
    query: (query: { readonly name?: string }) => {
      sent.push(query.name);
      return threads.pool.query(query as never);
    },
  };
  const failures: unknown[] = [];
  const { leaseToken, runId } = run;
  const early = { batchDelayMs, onFailure: (error: unknown) => failures.push(error) };
  const saver = new LeasedSaver(pool as never, { leaseToken, runId }, early);
  return { ...run, saver, sent, failures };
}
