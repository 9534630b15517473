import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js';
import { expect, it } from 'vitest';
import { Sessions } from '../../../api/tools/sessions.ts';
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

it('the events of a stream that was not sent as one are removed', async () => {
  const events = new StoredEvents(1_000_000);
  const [one, two] = [events.ofSession('key', 'one'), events.ofSession('key', 'two')];
  const first = await one.storeEvent('a', {} as JSONRPCMessage);
  const last = await one.storeEvent('a', message(1));
  const others = [await one.storeEvent('b', message(2)), await two.storeEvent('a', message(3))];
  events.removeStream('key', first);
  for (const id of [first, last]) expect(await one.getStreamIdForEventId?.(id)).toBeUndefined();
  expect(await one.getStreamIdForEventId?.(others[0] as string)).toBe('b');
  expect(await two.getStreamIdForEventId?.(others[1] as string)).toBe('a');
});

it('a session that is not used ends with its streams', async () => {
  const createServer = () => new Server({ name: 'test', version: '1' }, { capabilities: {} });
  const sessions = new Sessions(createServer, { heartbeatMs: 60_000, unusedMs: 200 });
  const { transport } = await sessions.create('key');
  const accept = 'application/json, text/event-stream';
  const initialize = {
    ...{ jsonrpc: '2.0', id: 0, method: 'initialize' },
    params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } },
  };
  const opened = await transport.handleRequest(
    new Request('http://runlake/mcp', {
      method: 'POST',
      headers: { accept, 'content-type': 'application/json' },
      body: JSON.stringify(initialize),
    }),
  );
  const sessionId = opened.headers.get('mcp-session-id') as string;
  await opened.text();
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
