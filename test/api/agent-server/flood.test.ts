import { expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/** Graphs that stream a million events while a client reads. */

const million = 1_000_000;
const mebibyte = 1024 ** 2;

const server = forSuite(() => startAgentServer({ config: { agentsHeartbeatTimeoutMs: 5_000 } }));

/** Frames of server-sent events as they arrive, as text without comments. */
async function* readFrames(response: Response): AsyncGenerator<string, void, undefined> {
  let rest = '';
  for await (const text of response.body!.pipeThrough(new TextDecoderStream())) {
    const frames = (rest + text).split('\n\n');
    rest = frames.pop()!;
    for (const frame of frames) yield frame.startsWith(':') ? frame.replaceAll(/^:.*\n/gm, '') : frame;
  }
}

async function stream(assistant_id: string, input: object): Promise<{ threadId: string; response: Response }> {
  const { thread_id: threadId } = await server.client.threads.create();
  const body = { assistant_id, input, stream_mode: 'custom' };
  return { threadId, response: await server.ask('POST', `/threads/${threadId}/runs/stream`, body) };
}

/** Returns the memory that this process uses for objects and buffers, without its code. */
function heldBytes(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** A test takes 10 s on an idle machine. */
const withTimeout = { timeout: 180_000 };

it('streams every event of a graph that yields to the event loop, in bounded memory', withTimeout, async () => {
  const before = heldBytes();
  let maxHeldBytes = 0;
  const watchTimer = setInterval(() => {
    maxHeldBytes = Math.max(maxHeldBytes, heldBytes() - before);
  }, 50);
  const { threadId, response } = await stream('burst', { n: million });
  let next = 0;
  let last = '';
  for await (const frame of readFrames(response)) {
    if (frame.includes(`data: {"i":${next}}\n`)) next += 1;
    last = frame;
  }
  clearInterval(watchTimer);
  // On a busy machine the client may read too slowly; the server then disconnects it with an error event.
  if (next < million) expect(last).toMatch(/^event: error\ndata: .*STREAM_READER_TOO_SLOW/);
  else expect(last).toContain(`id: 1-${million + 1}`);
  const status = async () => (await server.client.threads.get(threadId)).status;
  await expect.poll(status, { timeout: 120_000, interval: 200 }).toBe('idle');
  // The shared ring buffer is limited to 64 MiB; the remaining memory is garbage that is not collected yet.
  expect(maxHeldBytes / mebibyte).toBeLessThan(512);
});

it.each([false, true])(
  'a stalled client blocks neither the run nor others, then gets an error event, or every event if resumable (resumable: %s)',
  { timeout: 200_000 },
  async (kept) => {
    const { client } = server;
    const { thread_id: threadId } = await client.threads.create();
    // More than the ring buffer and the sockets can hold.
    const input = { n: 2_500, bytes: 32 * 1024, pauseMs: 1 };
    const run = { input, streamMode: 'custom' as const, streamResumable: kept, afterSeconds: 1 };
    const { run_id: runId } = await client.runs.create(threadId, 'burst', run);
    const join = () => server.ask('GET', `/threads/${threadId}/runs/${runId}/stream`);
    const [stalled, reads] = await Promise.all([join(), join()]);
    const seen: string[] = [];
    for await (const frame of readFrames(reads)) seen.push(frame.slice(-20));
    expect(seen).toHaveLength(input.n + 1);
    expect((await client.runs.get(threadId, runId)).status).toBe('success');
    const late: string[] = [];
    for await (const frame of readFrames(stalled))
      late.push(frame.startsWith('event: error') ? frame : frame.slice(-20));
    if (kept) expect(late).toEqual(seen);
    else {
      expect(late.pop()).toMatch(/STREAM_READER_TOO_SLOW/);
      expect(late).toEqual(seen.slice(0, late.length));
    }
  },
);

it('streams every event of a graph that never yields, if it ends before the event loop limit', async () => {
  const { response } = await stream('misbehave', { how: 'flood', ms: 100 });
  const numbers: number[] = [];
  for await (const frame of readFrames(response)) {
    const [, number] = /data: {"i":(\d+)}/.exec(frame) ?? [];
    if (number !== undefined) numbers.push(Number(number));
  }
  expect(numbers.length).toBeGreaterThan(100);
  expect(numbers).toEqual(numbers.map((_, index) => index));
});

it('ends a run that blocks the event loop at its limit, and reports the reason to its client', {
  timeout: 60_000,
}, async () => {
  const { threadId, response } = await stream('misbehave', { how: 'flood' });
  let last = '';
  for await (const frame of readFrames(response)) last = frame;
  expect(last).toMatch(/^event: error\ndata: .*its event loop did not turn for 5 s/);
  expect(await server.client.threads.get(threadId)).toMatchObject({ status: 'error' });
  expect(await server.client.runs.wait(threadId, 'burst', { input: { n: 1 } })).toMatchObject({ done: 1 });
});
