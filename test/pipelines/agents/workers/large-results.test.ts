import { describe, expect, test, vi } from 'vitest';
import { Outbox } from '../../../../pipelines/agents/workers/child/outbox.ts';
import { computeWorkerFrameLimits, FrameReader } from '../../../../pipelines/agents/workers/frames.ts';
import { decodeMessage } from '../../../../pipelines/agents/workers/message-codec.ts';
import type { MessageFromWorker } from '../../../../pipelines/agents/workers/messages.ts';
import { openPoolUnderTest } from '../../../agents/pool-under-test.ts';
import { forSuite } from '../../../for-suite.ts';
import { deferred } from '../../../infra/deferred.ts';

/** Ordinary results that the parent process does not accept end at most their own run, never the worker. */

const under = forSuite(() => openPoolUnderTest('hostile'));

/** Executes `attempt` beside another run in the same worker. @throws if the other run does not finish. */
async function besideAnotherRun<Result>(attempt: () => Promise<Result>): Promise<Result> {
  const { promise: waiting, resolve: resume } = deferred();
  const input = { attack: { how: 'none' } };
  const other = await under.start('attack', { input, take: () => waiting });
  const result = await attempt();
  resume();
  expect(await other.handle.outcome).toMatchObject({ kind: 'finished' });
  return result;
}

const queryState = async (threadId: string, graphId: string) => {
  const thread = { deploymentId: under.threads.deploymentId, threadId, graphId, config: {} };
  return JSON.parse(await under.pool.query({ kind: 'state', thread, subgraphs: false }));
};

test('a graph that stops before more than 10,000 tasks', async () => {
  const { threadId, outcome } = await besideAnotherRun(() => under.run('fan', { input: { n: 10_050 } }));
  expect(outcome).toMatchObject({ kind: 'finished', next: { length: 10_050 } });
  expect((await queryState(threadId, 'fan')).next).toHaveLength(10_050);
});

test('a state that is nested too deeply fails the run', async () => {
  const { threadId, outcome, received } = await besideAnotherRun(() =>
    under.run('nest', { input: { depth: 2_100 }, kwargs: { stream_mode: ['updates'] } }),
  );
  const message = expect.stringContaining('deeper than 2000');
  expect(outcome).toEqual({ kind: 'failed', error: 'StateTooLarge', message });
  expect(received).toMatchObject([
    { event: 'warning', data: { error: 'EventTooLarge', message } },
    { event: 'updates', data: { end: {} } },
  ]);
  await expect(queryState(threadId, 'nest')).rejects.toMatchObject({ code: 'WORKER_MESSAGE_TOO_LARGE', message });
});

test('a run that fails with such a state reports its own error', async () => {
  const { outcome } = await besideAnotherRun(() => under.run('nest', { input: { depth: 2_100, fails: true } }));
  expect(outcome).toEqual({ kind: 'failed', error: 'RangeError', message: 'on purpose' });
});

test('an event whose namespace has several lines is replaced', async () => {
  const kwargs = { stream_mode: ['updates'], subgraphs: true };
  const { outcome, received } = await besideAnotherRun(() => under.run('nested', { kwargs }));
  expect(outcome).toMatchObject({ kind: 'finished' });
  const message = expect.stringContaining('namespace');
  expect(received).toMatchObject([
    { event: 'warning', data: { message } },
    { event: 'updates', namespace: '' },
  ]);
});

describe('the outbox replaces a message that the parent process would refuse', () => {
  /** Sends a message. @returns what the parent process receives. */
  async function send(message: MessageFromWorker): Promise<MessageFromWorker> {
    const received: MessageFromWorker[] = [];
    const reader = new FrameReader(computeWorkerFrameLimits(0), (frame) => void received.push(decodeMessage(frame, 0)));
    const outbox = new Outbox({ write: (buffers) => reader.push(Buffer.concat(buffers)) });
    outbox.send(message);
    await vi.waitFor(() => expect(received).toHaveLength(1));
    return received[0] as MessageFromWorker;
  }

  const finished = { kind: 'finished', values: '{}', next: [], interrupts: {} } as const;
  const childRun = { kind: 'post', location: '', members: '', values: '', open: true } as const;
  test.each<[string, MessageFromWorker, object]>([
    [
      'an end with a state of millions of objects',
      { kind: 'ended', key: 1, nodes: 1, outcome: { ...finished, values: `[${'{},'.repeat(2_000_000)}1]` } },
      {
        outcome: {
          kind: 'failed',
          error: 'StateTooLarge',
          message: expect.stringContaining('2000000 objects and lists'),
        },
      },
    ],
    [
      'no end with a state of millions of numbers',
      { kind: 'ended', key: 1, nodes: 1, outcome: { ...finished, values: `[${'1,'.repeat(5_000_000)}"{"]` } },
      { outcome: { kind: 'finished' } },
    ],
    [
      'an end with a long node name',
      { kind: 'ended', key: 1, nodes: 1, outcome: { ...finished, next: ['n'.repeat(1_025)] } },
      { kind: 'ended', key: 1, nodes: 1, outcome: { kind: 'failed', error: 'StateTooLarge' } },
    ],
    [
      'an end with an interrupt whose id is a number',
      { kind: 'ended', key: 1, nodes: 1, outcome: { ...finished, interrupts: { a: [{ id: 1 as never, value: 1 }] } } },
      { kind: 'ended', outcome: { kind: 'failed', error: 'StateTooLarge' } },
    ],
    [
      'a child run with a long id',
      {
        ...{ kind: 'traced', key: 1 },
        traced: { runs: [{ ...childRun, runId: 'r'.repeat(65) }], droppedRuns: 1, droppedValues: 0 },
      },
      { kind: 'traced', key: 1, traced: { runs: [], droppedRuns: 2 } },
    ],
    [
      'an error with a parameter that is no text',
      { kind: 'query-error', key: 1, error: { code: 'GRAPH_FAILED', params: { graph: {} as never } } },
      { kind: 'query-error', key: 1, error: { code: 'WORKER_MESSAGE_TOO_LARGE' } },
    ],
  ])('%s', async (_, message, received) => {
    expect(await send(message)).toMatchObject(received);
  });
});
