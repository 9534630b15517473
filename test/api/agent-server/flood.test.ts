import { afterAll, beforeAll, expect, it } from 'vitest';
import { type AgentServerUnderTest, startAgentServer } from './start-agent-server.ts';

/** Graphs that stream a million events, with a reader attached. */

const million = 1_000_000;
const mebibyte = 1024 ** 2;

let server: AgentServerUnderTest;
beforeAll(async () => {
  server = await startAgentServer({ config: { agentsSilentMs: 5_000 } });
}, 60_000);
afterAll(() => server?.close());

/** Frames of server-sent events as they come, as text without comments. */
async function* framesOf(response: Response): AsyncGenerator<string, void, undefined> {
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

/** What this process holds beside the code: objects and buffers. */
function heldBytes(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** It takes 10 s on a quiet machine. */
const patience = { timeout: 180_000 };

it('a graph that gives others their turn streams all of it, in bounded memory', patience, async () => {
  const before = heldBytes();
  let mostHeld = 0;
  const watching = setInterval(() => {
    mostHeld = Math.max(mostHeld, heldBytes() - before);
  }, 50);
  const { threadId, response } = await stream('burst', { n: million });
  let next = 0;
  let last = '';
  for await (const frame of framesOf(response)) {
    if (frame.includes(`data: {"i":${next}}\n`)) next += 1;
    last = frame;
  }
  clearInterval(watching);
  // A reader that a busy machine keeps from reading is cut off, and is told so.
  if (next < million) expect(last).toMatch(/^event: error\ndata: .*STREAM_READER_TOO_SLOW/);
  else expect(last).toContain(`id: 1-${million + 1}`);
  const status = async () => (await server.client.threads.get(threadId)).status;
  await expect.poll(status, { timeout: 120_000, interval: 200 }).toBe('idle');
  // The records that readers share are bounded by 64 MiB; the rest is what the collector has not come to.
  expect(mostHeld / mebibyte).toBeLessThan(512);
});

it.each([false, true])(
  'a reader that stands still holds up neither the run nor others; then it is told why it is cut off, or has all that is kept (kept: %s)',
  { timeout: 200_000 },
  async (kept) => {
    const { client } = server;
    const { thread_id: threadId } = await client.threads.create();
    // More than readers share and sockets hold.
    const input = { n: 2_500, bytes: 32 * 1024, pauseMs: 1 };
    const run = { input, streamMode: 'custom' as const, streamResumable: kept, afterSeconds: 1 };
    const { run_id: runId } = await client.runs.create(threadId, 'burst', run);
    const join = () => server.ask('GET', `/threads/${threadId}/runs/${runId}/stream`);
    const [still, reads] = await Promise.all([join(), join()]);
    const seen: string[] = [];
    for await (const frame of framesOf(reads)) seen.push(frame.slice(-20));
    expect(seen).toHaveLength(input.n + 1);
    expect((await client.runs.get(threadId, runId)).status).toBe('success');
    const late: string[] = [];
    for await (const frame of framesOf(still)) late.push(frame.startsWith('event: error') ? frame : frame.slice(-20));
    if (kept) expect(late).toEqual(seen);
    else {
      expect(late.pop()).toMatch(/STREAM_READER_TOO_SLOW/);
      expect(late).toEqual(seen.slice(0, late.length));
    }
  },
);

it('many at once, without a turn for anybody else, all reach the reader where that takes less than the limit', async () => {
  const { response } = await stream('misbehave', { how: 'flood', ms: 100 });
  const numbers: number[] = [];
  for await (const frame of framesOf(response)) {
    const [, number] = /data: {"i":(\d+)}/.exec(frame) ?? [];
    if (number !== undefined) numbers.push(Number(number));
  }
  expect(numbers.length).toBeGreaterThan(100);
  expect(numbers).toEqual(numbers.map((_, place) => place));
});

it('one that holds the event loop ends by its limit, and its reader is told why', { timeout: 60_000 }, async () => {
  const { threadId, response } = await stream('misbehave', { how: 'flood' });
  let last = '';
  for await (const frame of framesOf(response)) last = frame;
  expect(last).toMatch(/^event: error\ndata: .*its event loop did not turn for 5 s/);
  expect(await server.client.threads.get(threadId)).toMatchObject({ status: 'error' });
  expect(await server.client.runs.wait(threadId, 'burst', { input: { n: 1 } })).toMatchObject({ done: 1 });
});
