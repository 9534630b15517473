import { randomUUID } from 'node:crypto';
import { WebSocket } from 'undici';
import { expect, it, onTestFinished } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/** Errors in streams of the v2 protocol: missing events, and a stream that breaks. */

const agents = forSuite(() => startAgentServer());

/** Creates a thread whose last run is in the state that its process leaves if the log did not accept all events. */
async function createIncompleteThread(): Promise<string> {
  const { thread_id: threadId } = await agents.client.threads.create();
  const payload = { input: { n: 1 }, afterSeconds: 600, streamResumable: true };
  const run = await agents.client.runs.create(threadId, 'burst', payload);
  await agents.database.execute('UPDATE agents.threads SET starts = 1 WHERE thread_id = $1', [threadId]);
  await agents.database.execute(
    `UPDATE agents.runs SET status = 'success', attempt = 1, thread_start = 1, events_missing = true, end_published = false,
       started_at = clock_timestamp(), ended_at = clock_timestamp() WHERE run_id = $1`,
    [run.run_id],
  );
  return threadId;
}

it('reports missing events as an error before the end, through the stock client', async () => {
  const thread = agents.client.threads.stream(await createIncompleteThread(), { assistantId: 'burst' });
  const errors: string[] = [];
  thread.onError(({ message }) => errors.push(message));
  let last: unknown;
  for await (const { params } of await thread.subscribe(['lifecycle'])) {
    last = params.data;
    break;
  }
  expect(last).toMatchObject({ event: 'completed' });
  expect(errors).toEqual([expect.stringContaining('STREAM_INCOMPLETE')]);
  await thread.close();
});

/** Collects what a subscription on a socket receives until the socket closes or the run ends. */
async function collectSocketEvents(threadId: string) {
  const socket = new WebSocket(`${agents.url.replace('http', 'ws')}/threads/${threadId}/stream/events`, {
    headers: { 'x-api-key': agents.owner.adminKey },
  });
  const seen: { type?: string; params?: { data?: { event?: string } } }[] = [];
  const closed = new Promise<number>((resolve) => {
    socket.addEventListener('close', ({ code }) => resolve(code));
    socket.addEventListener('message', ({ data }) => {
      const message = JSON.parse(String(data)) as (typeof seen)[0];
      seen.push(message);
      if (message.params?.data?.event === 'completed') socket.close();
    });
  });
  await new Promise((resolve) => socket.addEventListener('open', resolve));
  socket.send(JSON.stringify({ id: 1, method: 'subscription.subscribe', params: { channels: ['lifecycle'] } }));
  const code = await closed;
  return { code, seen: seen.slice(1) };
}

const incomplete = { type: 'error', id: null, error: 'unknown_error', message: /^STREAM_INCOMPLETE: / };
const expected = { ...incomplete, message: expect.stringMatching(incomplete.message) };

it('reports missing events on a WebSocket in the same way', async () => {
  const { seen } = await collectSocketEvents(await createIncompleteThread());
  expect(seen).toMatchObject([expected, { type: 'event', params: { data: { event: 'completed' } } }]);
});

it('ends a stream that breaks off with an error', async () => {
  const { agents: services } = agents.services;
  const { hub } = services;
  const broken: typeof hub.readThread = async (thread, from) => {
    const reader = await hub.readThread(thread, from);
    return {
      finish: () => reader.finish(),
      close: () => reader.close(),
      // biome-ignore lint/correctness/useYield: it throws before its first event.
      async *[Symbol.asyncIterator]() {
        throw runlakeError('STREAM_INCOMPLETE');
      },
    };
  };
  Object.assign(services, { hub: { ...hub, readThread: broken } });
  onTestFinished(() => {
    Object.assign(services, { hub });
  });
  const threadId = randomUUID();
  const streamed = await agents.ask('POST', `/threads/${threadId}/stream/events`, { channels: ['values'] });
  const text = (await streamed.text()).split('\n').filter((line) => /^(?:event|data):/.test(line));
  expect(text[0]).toBe('event: error');
  expect(JSON.parse(text[1]?.slice('data: '.length) ?? '')).toEqual(expected);
  expect(await collectSocketEvents(threadId)).toEqual({ code: 1011, seen: [expected] });
});
