import { describe, expect, test, vi } from 'vitest';
import { createLogger } from '../../../../infra/telemetry/logger.ts';
import { encodeFrame } from '../../../../pipelines/agents/workers/frames.ts';
import { openPoolUnderTest } from '../../../agents/pool-under-test.ts';
import { forSuite } from '../../../for-suite.ts';
import { Random } from '../../../histories/random.ts';
import { deferred } from '../../../infra/deferred.ts';

const waitOptions = { timeout: 30_000, interval: 20 };

const lines: string[] = [];
const logger = Object.assign(createLogger('silent', 'test'), {
  info: ({ line }: { line: string }) => void lines.push(line),
});
const limits = { maxBufferedBytes: 4 * 1024 * 1024, maxEventBytes: 1024 * 1024 };
const under = forSuite(() => openPoolUnderTest('hostile', { workers: 2, runsPerWorker: 1, logger, ...limits }));

/** Key of the most recently started run; the pool numbers its runs. */
let lastKey = 0;
const attack = (how: string, more: object = {}, job = {}) => {
  lastKey += 1;
  return under.start('attack', { input: { attack: { how, ...more } }, kwargs: { stream_mode: ['custom'] }, ...job });
};
const bytesOf = (frame: readonly Uint8Array[]) => Buffer.concat(frame).toString('base64');
const message = (head: object, body: string | Buffer = '') => bytesOf(encodeFrame(head, [Buffer.from(body)]));

/**
 * Runs `attempt`.
 *
 * @throws if a concurrent run in the other worker or a later run does not finish.
 */
async function expectUnaffectedRuns(attempt: () => Promise<void>): Promise<void> {
  await vi.waitFor(() => expect(under.pool.freeSlots).toBe(2), waitOptions);
  const { promise: waiting, resolve: resume } = deferred();
  const other = await attack('none', {}, { take: () => waiting });
  await attempt();
  resume();
  expect(await other.handle.outcome).toMatchObject({ kind: 'finished' });
  await vi.waitFor(() => expect(under.pool.freeSlots).toBe(2), waitOptions);
  const next = await attack('none');
  expect(await next.handle.outcome).toMatchObject({ kind: 'finished' });
}

test('a worker has no IPC channel of Node, so nothing can be sent on it', () =>
  expectUnaffectedRuns(async () => {
    const { handle } = await attack('send', {
      messages: [{ type: 'ready' }, null, 'x', [{ kind: 'ended', key: 1, nodes: 0 }]],
    });
    expect(await handle.outcome).toMatchObject({ kind: 'finished', values: expect.stringContaining('"done":true') });
  }));

describe('an invalid message ends only the worker that sent it, and its run', () => {
  test.each<[string, string, string]>([
    ['bytes that are no frame', Buffer.alloc(4_096, 0xff).toString('base64'), 'a message of 4294967295 bytes'],
    [
      'the end of a run of another worker',
      message({ kind: 'ended', key: 1, nodes: 0, outcome: { kind: 'fenced' } }),
      'does not have',
    ],
    ['a second ready message', message({ kind: 'ready', loadErrors: {}, routes: [], nodes: {} }), 'out of turn'],
    ['an answer without a request', message({ kind: 'response', key: 7 }, '{}'), 'of a worker for runs'],
  ])('%s', (_, bytes, reason) =>
    expectUnaffectedRuns(async () => {
      const { handle } = await attack('write', { bytes });
      const reported = expect.stringContaining(reason);
      expect(await handle.outcome).toEqual({ kind: 'lost', cause: 'worker', message: reported });
    }),
  );

  test.each<[string, (key: number) => string, string]>([
    [
      'more events than the send window allows',
      (key) => {
        const heads = Array.from({ length: 35_000 }, () => ['custom', 'custom', '', 1]);
        return message({ kind: 'chunks', key, heads }, '1'.repeat(heads.length));
      },
      'more events than the send window allows',
    ],
    [
      'an end with many tiny interrupts',
      (key) => {
        const interrupts = { task: Array.from({ length: 200_000 }, () => ({})) };
        return message({ kind: 'ended', key, nodes: 0, outcome: { kind: 'finished', next: [], interrupts } }, '{}');
      },
      'more than 200000 values',
    ],
    [
      'very many open child runs without text',
      (key) => {
        const runs = Array.from({ length: 20_000 }, () => ({
          ...{ kind: 'post', runId: 'r', open: true },
          sizes: [0, 0, 0],
        }));
        return message({ kind: 'traced', key, droppedRuns: 0, droppedValues: 0, runs });
      },
      "a message 'traced' that does not match its schema",
    ],
  ])('%s', (_, buildBytes, reason) =>
    expectUnaffectedRuns(async () => {
      const { handle } = await attack('write', { bytes: buildBytes(lastKey + 1) });
      const reported = expect.stringContaining(reason);
      expect(await handle.outcome).toEqual({ kind: 'lost', cause: 'worker', message: reported });
    }),
  );

  test('random bytes', () => {
    const random = new Random(1_047);
    return expectUnaffectedRuns(async () => {
      for (let round = 0; round < 5; round += 1) {
        const frame = Buffer.concat(
          encodeFrame({ kind: 'ended', key: 1, nodes: 0, outcome: { kind: 'finished', values: {} } }),
        );
        // Half of the rounds keep the beginning of a valid frame.
        const kept = random.chance(0.5) ? frame.subarray(0, random.between(1, frame.length)) : Buffer.alloc(0);
        const noise = Buffer.from(Array.from({ length: random.between(100, 5_000) }, () => random.between(0, 255)));
        const { handle } = await attack('write', { bytes: Buffer.concat([kept, noise]).toString('base64') });
        // The reader waits while a frame is shorter than its declared length.
        expect(await handle.outcome).toMatchObject({ kind: expect.stringMatching(/^(lost|finished)$/) });
      }
    });
  }, 120_000);

  test('a flood of heartbeats', () =>
    expectUnaffectedRuns(async () => {
      const heartbeats = bytesOf(Array.from({ length: 1_000 }, () => encodeFrame({ kind: 'heartbeat' })).flat());
      const { handle } = await attack('write', { bytes: heartbeats, times: 2_000 });
      expect(await handle.outcome).toMatchObject({
        kind: 'lost',
        cause: 'worker',
        message: expect.stringContaining('messages'),
      });
    }));

  test('a closed pipe', () =>
    expectUnaffectedRuns(async () => {
      const { handle } = await attack('close');
      expect(await handle.outcome).toMatchObject({ kind: 'lost', cause: 'worker' });
    }));
});

test('small events count with their overhead: a run that exceeds the stream buffer fails alone', () =>
  expectUnaffectedRuns(async () => {
    const { promise: waiting, resolve: resume } = deferred();
    let sent = 0;
    const take = async (chunks: readonly unknown[]) => {
      sent += chunks.length;
      await waiting;
    };
    const { handle } = await attack('events', {}, { take });
    // No event is acknowledged before that.
    await vi.waitFor(() => expect(lines).toContain('stopped'), waitOptions);
    resume();
    expect(await handle.outcome).toMatchObject({
      kind: 'failed',
      error: 'StreamBufferFull',
      message: expect.stringContaining('limit: 4194304'),
    });
    // The send window of 4 MiB admits no more events.
    expect(sent).toBeLessThan((4 * 1024 * 1024) / 256 + 10);
  }));

test('output printed in a loop is rate-limited in the log', () =>
  expectUnaffectedRuns(async () => {
    lines.length = 0;
    const beganMs = performance.now();
    const { handle } = await attack('print', { lines: 100_000 });
    expect(await handle.outcome).toMatchObject({ kind: 'finished' });
    const seconds = Math.ceil((performance.now() - beganMs) / 1_000) + 1;
    expect(lines).toContain('line 0');
    expect(lines).toContain('lines after the first 1000 of this second are dropped');
    expect(lines.length).toBeLessThanOrEqual(seconds * 1_001);
  }));
