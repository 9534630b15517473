import { type CloseEvent, type MessageEvent, WebSocket } from 'undici';
import { describe, expect, it } from 'vitest';
import { hashKey } from '../../../pipelines/tenants/key-format.ts';
import { forSuite } from '../../for-suite.ts';
import { addKey } from '../start-api.ts';
import { createRequester, readInBackground, startAgentServer } from './start-agent-server.ts';

/** Open streams and sockets whose caller loses access. */

const agents = forSuite(() => startAgentServer());

/** A generous bound for "within seconds" on a loaded machine; without the check the streams stay open for minutes. */
const withTimeout = { timeout: 15_000, interval: 100 };

const newKey = (expiresAt?: string) =>
  addKey({
    database: agents.database,
    organizationId: agents.owner.id,
    userId: agents.owner.userId,
    ...(expiresAt && { expiresAt }),
  });

/** Revokes the key as another process does: this process gets no notification. */
const revokeElsewhere = (key: string) =>
  agents.database.execute('UPDATE api_keys SET revoked_at = now() WHERE hash = $1', [hashKey(key)]);

const longRun = { assistant_id: 'steps', input: { steps: 1, pauseMs: 60_000 } };

async function createThreadWithRun() {
  const { thread_id: threadId } = await agents.client.threads.create();
  const { run_id: runId } = await agents.client.runs.create(threadId, 'steps', { input: longRun.input });
  return { threadId, runId };
}

/** Opens a response and reads it in the background until it ends. */
async function openAnswer(key: string, method: string, path: string, body?: unknown) {
  const answer = await createRequester(agents.url, key)(method, path, body, {
    accept: 'application/json, text/event-stream',
  });
  expect(answer.status).toBe(200);
  const seen = readInBackground(answer);
  await expect.poll(() => seen.text, withTimeout).not.toBe('');
  return seen;
}

async function openSocket(key: string, threadId: string) {
  const socket = new WebSocket(`${agents.url.replace('http', 'ws')}/threads/${threadId}/stream/events`, {
    headers: { 'x-api-key': key },
  });
  const messages: { id?: number; type: string; error?: string }[] = [];
  const seen: { messages: typeof messages; closed?: CloseEvent } = { messages };
  socket.addEventListener('message', (event: MessageEvent) => messages.push(JSON.parse(String(event.data))));
  socket.addEventListener('close', (event: CloseEvent) => {
    seen.closed = event;
  });
  await new Promise<void>((resolve, reject) => {
    socket.addEventListener('open', () => resolve(), { once: true });
    socket.addEventListener('error', reject, { once: true });
  });
  return Object.assign(seen, {
    send: (id: number, method: string, params: object) => socket.send(JSON.stringify({ id, method, params })),
  });
}

describe('revoking a key in another process', () => {
  it.each<[string, (ids: { threadId: string; runId: string }) => readonly [string, string, unknown?]]>([
    ['the stream of a joined run', ({ threadId, runId }) => ['GET', `/threads/${threadId}/runs/${runId}/stream`]],
    ['waiting for a run', ({ threadId, runId }) => ['GET', `/threads/${threadId}/runs/${runId}/join`]],
    ['the stream of a thread', ({ threadId }) => ['GET', `/threads/${threadId}/stream`]],
    [
      'the events of a thread',
      ({ threadId }) => ['POST', `/threads/${threadId}/stream/events`, { channels: ['values', 'lifecycle'] }],
    ],
    ['a streamed run', () => ['POST', '/runs/stream', longRun]],
    ['waiting for a stateless run', () => ['POST', '/runs/wait', longRun]],
    [
      'a tool call',
      () => [
        'POST',
        '/mcp',
        {
          jsonrpc: '2.0',
          id: 1,
          method: 'tools/call',
          params: { name: 'steps', arguments: longRun.input },
        },
      ],
    ],
  ])('ends %s and reports the reason', async (_what, buildRequest) => {
    const key = await newKey();
    const seen = await openAnswer(key, ...buildRequest(await createThreadWithRun()));
    expect(seen.ended).toBe(false);
    await revokeElsewhere(key);
    await expect.poll(() => seen.ended, withTimeout).toBe(true);
    expect(seen.text).toMatch(/API_KEY_INVALID|The API key is not valid/);
  });

  it('closes a WebSocket, which streams nothing afterwards', async () => {
    const key = await newKey();
    const { threadId } = await createThreadWithRun();
    const socket = await openSocket(key, threadId);
    socket.send(1, 'subscription.subscribe', { channels: ['lifecycle'] });
    await expect.poll(() => socket.messages[0], withTimeout).toMatchObject({ type: 'success', id: 1 });
    await revokeElsewhere(key);
    await expect.poll(() => socket.closed, withTimeout).toMatchObject({ code: 1008, reason: 'API_KEY_INVALID' });
  });
});

it('rejects a command on a WebSocket at once after the key is revoked, and starts no run', async () => {
  const key = await newKey();
  const { thread_id: threadId } = await agents.client.threads.create();
  const socket = await openSocket(key, threadId);
  await revokeElsewhere(key);
  agents.services.authenticator.forgetKey(hashKey(key));
  socket.send(1, 'run.start', { assistant_id: 'echo', input: {} });
  await expect
    .poll(() => socket.messages, withTimeout)
    .toMatchObject([{ type: 'error', id: 1, error: 'permission_denied' }]);
  await expect.poll(() => socket.closed, withTimeout).toMatchObject({ code: 1008, reason: 'API_KEY_INVALID' });
  expect(await agents.client.runs.list(threadId)).toEqual([]);
});

it('ends the streams of a key that expires', async () => {
  const key = await newKey(new Date(Date.now() + 4_000).toISOString());
  const { threadId } = await createThreadWithRun();
  const seen = await openAnswer(key, 'GET', `/threads/${threadId}/stream`);
  const socket = await openSocket(key, threadId);
  await expect.poll(() => seen.ended, withTimeout).toBe(true);
  expect(seen.text).toContain('API_KEY_INVALID');
  await expect.poll(() => socket.closed, withTimeout).toMatchObject({ code: 1008, reason: 'API_KEY_INVALID' });
});

it('keeps the streams of other keys open', async () => {
  const [kept, revoked] = [await newKey(), await newKey()];
  const { threadId } = await createThreadWithRun();
  const keptStream = await openAnswer(kept, 'GET', `/threads/${threadId}/stream`);
  const ends = await openAnswer(revoked, 'GET', `/threads/${threadId}/stream`);
  const socket = await openSocket(kept, threadId);
  await revokeElsewhere(revoked);
  await expect.poll(() => ends.ended, withTimeout).toBe(true);
  expect(keptStream.ended).toBe(false);
  socket.send(1, 'state.get', {});
  await expect.poll(() => socket.messages, withTimeout).toMatchObject([{ type: 'success', id: 1 }]);
});
