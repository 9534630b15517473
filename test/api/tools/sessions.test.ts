import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Session, Sessions } from '../../../api/tools/sessions.ts';
import { StoredEvents } from '../../../api/tools/stored-events.ts';

const message = (id: number, bytes = 0): JSONRPCMessage => ({
  jsonrpc: '2.0',
  id,
  result: { text: 'x'.repeat(bytes) },
});

async function replay(store: ReturnType<StoredEvents['ofSession']>, lastEventId: string) {
  const ids: unknown[] = [];
  await store.replayEventsAfter(lastEventId, { send: async (_, sent) => void ids.push((sent as { id: number }).id) });
  return ids;
}

it('the events of a stream are replayed in order, without those of other streams and sessions', async () => {
  const events = new StoredEvents(1_000_000);
  const [one, two] = [events.ofSession('key', 'one'), events.ofSession('key', 'two')];
  const first = await one.storeEvent('a', message(1));
  await two.storeEvent('a', message(2));
  await one.storeEvent('b', message(3));
  await one.storeEvent('a', message(4));
  await one.storeEvent('a', message(5));
  expect(await replay(one, first)).toEqual([4, 5]);
  // To find an event does not make it newer.
  expect(await replay(one, first)).toEqual([4, 5]);
  expect(await two.getStreamIdForEventId?.(first)).toBeUndefined();
  expect(await events.ofSession('other', 'one').getStreamIdForEventId?.(first)).toBeUndefined();
  events.remove('key', 'one');
  expect(await one.getStreamIdForEventId?.(first)).toBeUndefined();
});

it('large results of one key do not remove those of another', async () => {
  const events = new StoredEvents(10_000);
  const quiet = events.ofSession('quiet', 'q');
  const loud = events.ofSession('loud', 'l');
  const kept = await quiet.storeEvent('s', message(1));
  const removed = await loud.storeEvent('s', message(2, 1_000));
  for (let id = 3; id < 30; id += 1) await loud.storeEvent('s', message(id, 1_000));
  const last = await loud.storeEvent('s', message(30, 1_000));
  expect(await quiet.getStreamIdForEventId?.(kept)).toBe('s');
  expect(await loud.getStreamIdForEventId?.(removed)).toBeUndefined();
  expect(await loud.getStreamIdForEventId?.(last)).toBe('s');
});

it('events take as much memory as they count for', async () => {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  const store = new StoredEvents(64 * 1024 ** 2).ofSession('key', 'one');
  const json = JSON.stringify({ jsonrpc: '2.0', id: 1, result: { lists: Array.from({ length: 300_000 }, () => []) } });
  collectGarbage();
  const usedBefore = process.memoryUsage().heapUsed;
  const count = 10;
  for (let id = 0; id < count; id += 1) await store.storeEvent('s', JSON.parse(json) as JSONRPCMessage);
  collectGarbage();
  expect(process.memoryUsage().heapUsed - usedBefore).toBeLessThan(2 * count * json.length);
});

const createServer = () => new Server({ name: 'test', version: '1' }, { capabilities: {} });

/** Sends `initialize`, which makes the id of the session valid. */
async function initialize({ transport }: Session): Promise<string> {
  const accept = 'application/json, text/event-stream';
  const body = {
    ...{ jsonrpc: '2.0', id: 0, method: 'initialize' },
    params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } },
  };
  const headers = { accept, 'content-type': 'application/json' };
  const opened = await transport.handleRequest(
    new Request('http://runlake/mcp', { method: 'POST', headers, body: JSON.stringify(body) }),
  );
  await opened.text();
  return opened.headers.get('mcp-session-id') as string;
}

it('a session that is not used ends with its streams', async () => {
  const sessions = new Sessions(createServer, { heartbeatMs: 60_000, unusedMs: 200 });
  const session = await sessions.create('key');
  const { transport } = session;
  const sessionId = await initialize(session);
  expect(sessions.find('key', sessionId)?.transport).toBe(transport);
  const stream = await transport.handleRequest(
    new Request('http://runlake/mcp', {
      method: 'GET',
      headers: { accept: 'text/event-stream', 'mcp-session-id': sessionId, 'mcp-protocol-version': '2025-11-25' },
    }),
  );
  expect(stream.status).toBe(200);
  await stream.text();
  expect(sessions.find('key', sessionId)).toBeUndefined();
  sessions.close();
}, 10_000);

describe('a request of a session gets its response once', () => {
  /** Sends a request whose handler returns after `ms`, by the clock of the test. Returns the kind of the answer. */
  async function ask(ms: number) {
    const calls: unknown[] = [];
    const sessions = new Sessions(
      () => {
        const server = createServer();
        server.fallbackRequestHandler = ({ params }) => {
          calls.push(params);
          return new Promise((resolve) => setTimeout(() => resolve({ text: 'late' }), ms));
        };
        return server;
      },
      { heartbeatMs: 60_000 },
    );
    const session = await sessions.create('key');
    const sessionId = await initialize(session);
    const headers = {
      accept: 'application/json, text/event-stream',
      'content-type': 'application/json',
      'mcp-session-id': sessionId,
      'mcp-protocol-version': '2025-11-25',
    };
    const request = () => new Request('http://runlake/mcp', { method: 'POST', headers });
    const send = (id: number) =>
      session.transport.answer({ jsonrpc: '2.0', id, method: 'wait', params: { id } }, {}, request);
    const answers = [send(1), send(2)];
    // A client must not repeat an id before it has the response, which may be on a stream.
    const refused = { id: 1, error: { code: -32_600 } };
    expect(await send(1)).toMatchObject(refused);
    await vi.advanceTimersByTimeAsync(200);
    if (ms > 200) expect(await send(1)).toMatchObject(refused);
    await vi.advanceTimersByTimeAsync(800);
    const again = send(1);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(await again).not.toMatchObject({ error: {} });
    const texts = (await Promise.all(answers)).map(async (answer) =>
      answer instanceof Response
        ? [...(await answer.text()).matchAll(/^data: (\{.*)$/gm)].map(([, data = '']) => [
            'stream',
            JSON.parse(data) as JSONRPCMessage,
          ])
        : [['json', answer]],
    );
    const received = (await Promise.all(texts)).flat() as [string, JSONRPCMessage & { id: number }][];
    sessions.close();
    return { calls, kinds: received.map(([kind, { id }]) => `${id} ${kind}`) };
  }

  beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] }));
  afterEach(() => void vi.useRealTimers());

  it.each([
    [0, ['1 json', '2 json']],
    [99, ['1 json', '2 json']],
    [101, ['1 stream', '2 stream']],
    [500, ['1 stream', '2 stream']],
  ])('whose handler takes %i ms', async (ms, kinds) => {
    const result = await ask(ms);
    expect(result.kinds).toEqual(kinds);
    expect(result.calls).toEqual([{ id: 1 }, { id: 2 }, { id: 1 }]);
  });
});
