import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { createLogger } from '../../../../infra/telemetry/logger.ts';
import { encodeFrame } from '../../../../pipelines/agents/workers/frames.ts';
import { openPoolUnderTest, type PoolUnderTest } from '../../../agents/pool-under-test.ts';
import { Random } from '../../../histories/random.ts';
import { deferred } from '../../../infra/deferred.ts';

const patiently = { timeout: 30_000, interval: 20 };

let under: PoolUnderTest;
const lines: string[] = [];
const logger = Object.assign(createLogger('silent', 'test'), {
  info: ({ line }: { line: string }) => void lines.push(line),
});
beforeAll(async () => {
  const limits = { maxBufferedBytes: 4 * 1024 * 1024, maxEventBytes: 1024 * 1024 };
  under = await openPoolUnderTest('hostile', { workers: 2, runsPerWorker: 1, logger, ...limits });
});
afterAll(() => under?.close());

const attack = (how: string, more: object = {}, job = {}) =>
  under.start('attack', { input: { attack: { how, ...more } }, kwargs: { stream_mode: ['custom'] }, ...job });
const bytesOf = (frame: readonly Uint8Array[]) => Buffer.concat(frame).toString('base64');
const message = (head: object, body: string | Buffer = '') => bytesOf(encodeFrame(head, [Buffer.from(body)]));

/** A run in the other worker that waits meanwhile finishes, and so does one that comes afterwards. */
async function besideAnother(attempt: () => Promise<void>): Promise<void> {
  await vi.waitFor(() => expect(under.pool.freeSlots).toBe(2), patiently);
  const { promise: waiting, resolve: goOn } = deferred();
  const other = await attack('none', {}, { take: () => waiting });
  await attempt();
  goOn();
  expect(await other.handle.outcome).toMatchObject({ kind: 'finished' });
  await vi.waitFor(() => expect(under.pool.freeSlots).toBe(2), patiently);
  const next = await attack('none');
  expect(await next.handle.outcome).toMatchObject({ kind: 'finished' });
}

test('the channel of Node is not there, so that nothing can be sent by it', () =>
  besideAnother(async () => {
    const { handle } = await attack('send', { messages: [{ type: 'ready' }, null, 'x', [{ kind: 'ended', key: 1 }]] });
    expect(await handle.outcome).toMatchObject({ kind: 'finished', values: expect.stringContaining('"done":true') });
  }));

describe('what no worker sends ends the one that sent it, with its run alone', () => {
  test.each<[string, string, string]>([
    ['no frames', Buffer.alloc(4_096, 0xff).toString('base64'), 'a message of 4294967295 bytes'],
    ['the end of a run elsewhere', message({ kind: 'ended', key: 1, outcome: { kind: 'fenced' } }), 'does not have'],
    ['getting ready again', message({ kind: 'ready', loadErrors: {}, routes: [], nodes: {} }), 'out of turn'],
    ['an answer to no question', message({ kind: 'answer', key: 7 }, '{}'), 'of a worker for runs'],
  ])('%s', (_, bytes, reason) =>
    besideAnother(async () => {
      const { handle } = await attack('write', { bytes });
      const said = expect.stringContaining(reason);
      expect(await handle.outcome).toEqual({ kind: 'lost', blame: 'self', message: said });
    }),
  );

  test('any bytes, whatever they are', () => {
    const random = new Random(1_047);
    return besideAnother(async () => {
      for (let round = 0; round < 5; round += 1) {
        const frame = Buffer.concat(encodeFrame({ kind: 'ended', key: 1, outcome: { kind: 'finished', values: {} } }));
        // Half of them keep the beginning of a frame that is right.
        const kept = random.chance(0.5) ? frame.subarray(0, random.between(1, frame.length)) : Buffer.alloc(0);
        const noise = Buffer.from(Array.from({ length: random.between(100, 5_000) }, () => random.between(0, 255)));
        const { handle } = await attack('write', { bytes: Buffer.concat([kept, noise]).toString('base64') });
        // Fewer bytes than a frame says to have are waited for.
        expect(await handle.outcome).toMatchObject({ kind: expect.stringMatching(/^(lost|finished)$/) });
      }
    });
  }, 120_000);

  test('more messages than there is reason for', () =>
    besideAnother(async () => {
      const beats = bytesOf(Array.from({ length: 1_000 }, () => encodeFrame({ kind: 'heartbeat' })).flat());
      const { handle } = await attack('write', { bytes: beats, times: 2_000 });
      expect(await handle.outcome).toMatchObject({
        kind: 'lost',
        blame: 'self',
        message: expect.stringContaining('messages'),
      });
    }));

  test('a pipe that it closes', () =>
    besideAnother(async () => {
      const { handle } = await attack('close');
      expect(await handle.outcome).toMatchObject({ kind: 'lost', blame: 'self' });
    }));
});

test('many small events cost what they take: a run that streams more than may wait fails by itself', () =>
  besideAnother(async () => {
    const { promise: waiting, resolve: goOn } = deferred();
    let held = 0;
    const take = async (chunks: readonly unknown[]) => {
      held += chunks.length;
      await waiting;
    };
    const { handle } = await attack('events', {}, { take });
    // Nothing is acknowledged until then.
    await vi.waitFor(() => expect(lines).toContain('stopped'), patiently);
    goOn();
    expect(await handle.outcome).toEqual({
      kind: 'failed',
      error: 'StreamBufferFull',
      message: expect.stringContaining('limit: 4194304'),
    });
    // The send window of 4 MiB has room for no more.
    expect(held).toBeLessThan((4 * 1024 * 1024) / 256 + 10);
  }));

test('what it prints in a loop does not fill the log', () =>
  besideAnother(async () => {
    lines.length = 0;
    const beganMs = performance.now();
    const { handle } = await attack('print', { lines: 100_000 });
    expect(await handle.outcome).toMatchObject({ kind: 'finished' });
    const seconds = Math.ceil((performance.now() - beganMs) / 1_000) + 1;
    expect(lines).toContain('line 0');
    expect(lines).toContain('lines after the first 1000 of this second are dropped');
    expect(lines.length).toBeLessThanOrEqual(seconds * 1_001);
  }));
