import { beforeAll, describe, expect, it } from 'vitest';
import type { Database } from '../../../../infra/postgres/database.ts';
import { encodeRunEnd } from '../../../../pipelines/agents/execute/publish-end.ts';
import { awaitRunEnd } from '../../../../pipelines/agents/runs/await-run-end.ts';
import { claimRuns } from '../../../../pipelines/agents/runs/claim-runs.ts';
import { createRun } from '../../../../pipelines/agents/runs/create-run.ts';
import { endRun, type RunResult } from '../../../../pipelines/agents/runs/end-run.ts';
import { deleteExpiredFinalValues, markEndsPublished } from '../../../../pipelines/agents/runs/published-ends.ts';
import type { ClaimedRun, EndedRun } from '../../../../pipelines/agents/runs/run-row.ts';
import type { StreamHub } from '../../../../pipelines/agents/streams/stream-types.ts';
import { createThread } from '../../../../pipelines/agents/threads/write-threads.ts';
import { addDeployment } from '../../../agents/add-deployment.ts';
import { forSuite } from '../../../for-suite.ts';
import { openStreams } from '../streams/streams-under-test.ts';
import { newRun, processId } from './run-rows.ts';

const large = 'x'.repeat(1024 * 1024);
const under = forSuite(() => openStreams());
let database: Database;
let deploymentId: string;
let hub: StreamHub;

beforeAll(async () => {
  ({ database } = under.stores);
  deploymentId = await addDeployment(database);
  hub = await under.hub({ deploymentId });
});

async function startRun(threadId: string | undefined, temporary = false): Promise<ClaimedRun> {
  await createRun(database, deploymentId, newRun(threadId, { temporary }));
  const [claimed] = await claimRuns(database, deploymentId, { slots: 1, processId });
  return claimed as ClaimedRun;
}

async function publishEnd(ended: EndedRun): Promise<void> {
  const { threadId, runId, attempt, threadStart, endedAt } = ended;
  const data = encodeRunEnd(ended, undefined);
  const endedAtMicros = Date.parse(endedAt) * 1_000;
  await under
    .publisher()
    .publishEnd({ deploymentId, threadId, runId, attempt, threadStart, kept: false, data, endedAtMicros });
}

/** Ends a run with `result`, and then a later run of the same thread, before the end of the first run is published. */
async function endTwoRuns(result: RunResult) {
  const { thread_id: threadId } = await createThread(database, deploymentId, { metadata: {}, ifExists: 'raise' });
  const first = await startRun(threadId);
  const ids = { deploymentId, threadId, runId: first.runId };
  const reader = await hub.readRun(ids, 'now');
  const ended = (await endRun(database, first, result)) as EndedRun;
  await endRun(database, await startRun(threadId), { status: 'success', values: '{"of":"the later run"}' });
  await publishEnd(ended);
  const answer = async (attached?: typeof reader) => {
    const signal = AbortSignal.timeout(20_000);
    const text = await awaitRunEnd({ hub, database }, ids, { ...(attached && { attached }), signal });
    return text && JSON.parse(text);
  };
  return { reader, answer };
}

const interrupt = (value: string) => ({ task: [{ id: 'i', value }] });

describe('the answer of a run followed by a later run on its thread', () => {
  it.each<[string, RunResult, object]>([
    ['small values', { status: 'success', values: '{"a":1}' }, { a: 1 }],
    ['large values', { status: 'success', values: JSON.stringify({ large }) }, { large }],
    [
      'large values and an interrupt',
      { status: 'success', values: JSON.stringify({ large }), next: ['ask'], interrupts: interrupt('?') },
      { large, __interrupt__: [{ id: 'i', value: '?' }] },
    ],
    [
      'a large interrupt',
      { status: 'success', values: '{"a":1}', next: ['ask'], interrupts: interrupt(large) },
      { a: 1, __interrupt__: [{ id: 'i', value: large }] },
    ],
  ])('contains its own %s', async (_, result, expected) => {
    const { reader, answer } = await endTwoRuns(result);
    expect(await answer(reader)).toEqual(expected);
  });

  it('contains its own large values also if the request attaches after the end, until they expire', async () => {
    const { reader, answer } = await endTwoRuns({ status: 'success', values: JSON.stringify({ large }) });
    reader.close();
    await deleteExpiredFinalValues(database, deploymentId);
    expect(await answer()).toEqual({ large });
    // Simulates five minutes later.
    await database.execute(`UPDATE agents.final_values SET expires_at = expires_at - interval '5 minutes'`);
    expect(await deleteExpiredFinalValues(database, deploymentId)).toBeGreaterThan(0);
    expect(await answer()).toEqual({ of: 'the later run' });
    expect(await database.query('SELECT FROM agents.final_values')).toEqual([]);
  });
});

it('the answer of a run that no longer exists is an error', async () => {
  const { thread_id: threadId } = await createThread(database, deploymentId, { metadata: {}, ifExists: 'raise' });
  const { runId } = await startRun(threadId);
  await database.execute('DELETE FROM agents.runs WHERE run_id = $1', [runId]);
  const run = { deploymentId, threadId, runId };
  const text = await awaitRunEnd({ hub, database }, run, { signal: AbortSignal.timeout(20_000) });
  const message = expect.stringContaining(runId);
  expect(JSON.parse(text as string)).toEqual({ __error__: { error: 'RunNotFound', message } });
});

describe('the answer of a temporary run, read after its end is marked as published', () => {
  /** Returns the answer to a request that is slower than the deletion of a temporary run. */
  async function answerLate(result: RunResult, afterMark = async (_run: EndedRun) => {}) {
    const run = await startRun(undefined, true);
    const reader = await hub.readRun(run, 'now');
    const ended = (await endRun(database, run, result)) as EndedRun;
    await publishEnd(ended);
    await markEndsPublished(database, [ended]);
    await afterMark(ended);
    const text = await awaitRunEnd({ hub, database }, run, { attached: reader, signal: AbortSignal.timeout(20_000) });
    return { ended, answer: JSON.parse(text as string) };
  }
  const readThreads = (threadId: string) =>
    database.query<{ expires: boolean }>(
      'SELECT expires_at > now() AS expires FROM agents.threads WHERE thread_id = $1',
      [threadId],
    );
  const huge = 'é'.repeat(5 * 1024 * 1024);

  it.each<[string, RunResult, object, readonly object[]]>([
    ['small values', { status: 'success', values: '{"a":1}' }, { a: 1 }, []],
    ['large values', { status: 'success', values: JSON.stringify({ huge }) }, { huge }, [{ expires: true }]],
    [
      'a large interrupt',
      { status: 'success', values: '{"a":1}', next: ['ask'], interrupts: interrupt(huge) },
      { a: 1, __interrupt__: [{ id: 'i', value: huge }] },
      [{ expires: true }],
    ],
    ['no values', { status: 'interrupted' }, {}, []],
  ])('contains its %s', async (_, result, expected, threads) => {
    const { ended, answer } = await answerLate(result);
    expect(answer).toEqual(expected);
    expect(await readThreads(ended.threadId)).toEqual(threads);
  });

  it('is an error if the values no longer exist', async () => {
    const result: RunResult = { status: 'success', values: JSON.stringify({ huge }) };
    const { answer } = await answerLate(result, async ({ threadId }) => {
      await database.execute('DELETE FROM agents.runs WHERE thread_id = $1', [threadId]);
    });
    expect(answer).toMatchObject({ __error__: { error: 'RunNotFound' } });
  });
});
