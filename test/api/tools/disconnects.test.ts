import { randomUUID } from 'node:crypto';
import { beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import type { ClickHouse, Query } from '../../../infra/clickhouse/clickhouse.ts';
import { forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';
import { rootRun, sendRuns } from './send-runs.ts';
import { startToolServer, type ToolsUnderTest } from './start-tools.ts';

/** Calls whose client disconnects or cancels, while ClickHouse executes a query of the call. */
const server = forSuite(() => startToolServer());
/** Sends queries of the test, which are not slowed down. */
let query: ClickHouse['query'];
beforeAll(async () => {
  query = server.api.services.clickhouse.query.bind(server.api.services.clickhouse);
  await sendRuns(server, [rootRun('slow')]);
  await server.api.settled();
});

/** The comment by which the query of the current test is found in `system.processes`. */
let marker: string;
beforeEach(() => {
  marker = randomUUID();
});

/** Queries of `fetch_runs`. Background work of the server queries ClickHouse, too. */
const queriesOfCall = ['stored-times', 'probe-runs', 'find-runs', 'find-newest-runs', 'find-candidates'];

/** Lets the next query of a call take `seconds` longer, in the same context. */
function slowDownNextQuery(on: ToolsUnderTest = server, seconds = 50): void {
  const { clickhouse } = on.api.services;
  const send = clickhouse.query.bind(clickhouse);
  const slow = async (given: Query) => {
    if (!queriesOfCall.includes(given.name)) return send(given);
    spy.mockRestore();
    const sql = `SELECT /* ${marker} */ sleepEachRow(0.1) FROM numbers(${seconds * 10}) SETTINGS max_block_size = 1`;
    await send({ name: given.name, sql, timeoutMs: 60_000 });
    return send(given);
  };
  const spy = vi.spyOn(clickhouse, 'query').mockImplementation(slow as typeof send);
}

async function countSlowQueries(): Promise<number> {
  const sql = `SELECT toUInt32(count()) AS count FROM system.processes WHERE query LIKE 'SELECT /* ${marker} */%'`;
  const [row] = await query<{ count: number }>({ name: 'test', sql });
  return row?.count ?? 0;
}

const isSlowQueryRunning = () => until('the query runs', async () => (await countSlowQueries()) > 0);
/** The query would take 50 seconds. */
const isSlowQueryKilled = () => until('the query is killed', async () => (await countSlowQueries()) === 0, 10_000);

function send(method: string, body: object | undefined, headers: object = {}, signal?: AbortSignal): Promise<Response> {
  return fetch(`${server.url}/mcp`, {
    method,
    headers: {
      accept: 'application/json, text/event-stream',
      'x-api-key': server.owner.workspaceKeys[0],
      ...(body && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body && { body: JSON.stringify(body) }),
    ...(signal && { signal }),
  });
}

async function openSession(protocolVersion: string) {
  const clientInfo = { name: 'test', version: '1' };
  const params = { protocolVersion, capabilities: {}, clientInfo };
  const opened = await send('POST', { jsonrpc: '2.0', id: 0, method: 'initialize', params });
  await opened.text();
  return { 'mcp-session-id': opened.headers.get('mcp-session-id') ?? '', 'mcp-protocol-version': protocolVersion };
}

/** Opens a stream with the messages after an event of the session. Returns its status. */
async function resume(session: Awaited<ReturnType<typeof openSession>>, number: number): Promise<number> {
  const leave = new AbortController();
  const id = `${session['mcp-session-id']}_${String(number).padStart(16, '0')}`;
  const { status } = await send('GET', undefined, { ...session, 'last-event-id': id }, leave.signal);
  leave.abort();
  return status;
}

const args = { project_name: 'slow', limit: 10, page_number: 1 };
const call = { jsonrpc: '2.0', id: 'slow-call', method: 'tools/call', params: { name: 'fetch_runs', arguments: args } };

/** The first event of a stream that has an id. The stream stays open. */
async function readEvent(response: Response): Promise<{ id: string; text: string }> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  while (!/^id: [\s\S]*\n\n/m.test(text)) text += (await reader?.read())?.value ?? '';
  return { id: /^id: (.*)$/m.exec(text)?.[1] ?? '', text };
}

describe('a call ends with its queries', () => {
  it('when a client without a session disconnects', async () => {
    slowDownNextQuery();
    const disconnect = new AbortController();
    const answer = send('POST', call, {}, disconnect.signal)
      .then((response) => response.text())
      .catch(() => 'disconnected');
    await isSlowQueryRunning();
    disconnect.abort();
    expect(await answer).toBe('disconnected');
    await isSlowQueryKilled();
  });

  it('when a client disconnects that cannot resume its stream', async () => {
    const session = await openSession('2025-06-18');
    slowDownNextQuery();
    const disconnect = new AbortController();
    const answer = send('POST', call, session, disconnect.signal)
      .then((response) => response.text())
      .catch(() => 'disconnected');
    await isSlowQueryRunning();
    disconnect.abort();
    expect(await answer).toBe('disconnected');
    await isSlowQueryKilled();
    const ping = await send('POST', { jsonrpc: '2.0', id: 'slow-call', method: 'ping' }, session);
    expect(await ping.text()).toContain('"result":{}');
  });

  it('when its client cancels it', async () => {
    const client = await server.connect();
    slowDownNextQuery();
    const cancel = new AbortController();
    const result = client
      .callTool({ name: 'fetch_runs', arguments: args }, undefined, { signal: cancel.signal })
      .catch(() => 'cancelled');
    await isSlowQueryRunning();
    cancel.abort();
    expect(await result).toBe('cancelled');
    await isSlowQueryKilled();
  });

  it.each(['2025-06-18', '2025-11-25'])(
    'and with its stream when its client cancels it: version %s',
    async (version) => {
      const session = await openSession(version);
      slowDownNextQuery();
      const response = await send('POST', call, session);
      await isSlowQueryRunning();
      const params = { requestId: call.id };
      await send('POST', { jsonrpc: '2.0', method: 'notifications/cancelled', params }, session);
      // Ends before the query would.
      const lines = (await response.text()).split('\n').filter((line) => line.startsWith('data: {'));
      expect(lines.map((line) => JSON.parse(line.slice(6)))).toMatchObject([{ id: call.id, error: { code: -32_800 } }]);
      await isSlowQueryKilled();
      const ping = await send('POST', { jsonrpc: '2.0', id: call.id, method: 'ping' }, session);
      expect(await ping.text()).toContain('"result":{}');
    },
    20_000,
  );

  it('when it takes too long', async () => {
    const quick = await startToolServer({ config: { toolsCallTimeoutMs: 2_000 } });
    await sendRuns(quick, [rootRun('slow')]);
    await quick.api.settled();
    slowDownNextQuery(quick);
    const { error } = await quick.call('fetch_runs', args);
    expect(error).toMatch(/did not finish within 2000 ms/);
    await isSlowQueryKilled();
    await quick.close();
  });
});

it('an answer that was sent as JSON is not stored', async () => {
  const session = await openSession('2025-11-25');
  const ping = await send('POST', { jsonrpc: '2.0', id: 1, method: 'ping' }, session);
  expect(ping.headers.get('content-type')).toMatch('application/json');
  await ping.text();
  // The only events are those of the response to `initialize`.
  const statuses: number[] = [];
  for (let number = 1; number <= 80; number += 1) statuses.push(await resume(session, number));
  expect(statuses.filter((status) => status !== 400)).toHaveLength(2);
});

describe('a stream whose client disconnects', () => {
  it('can be resumed at once: its call goes on', async () => {
    const session = await openSession('2025-11-25');
    slowDownNextQuery(server, 6);
    const disconnect = new AbortController();
    const { id } = await readEvent(await send('POST', call, session, disconnect.signal));
    await isSlowQueryRunning();
    disconnect.abort();
    let resumed: Response | undefined;
    // The server needs a moment to notice that the connection was closed.
    const isFree = async () => {
      resumed = await send('GET', undefined, { ...session, 'last-event-id': id });
      if (resumed.status !== 200) await resumed.text();
      return resumed.status === 200;
    };
    await until('the stream can be resumed', isFree, 2_000);
    expect(await countSlowQueries()).toBe(1);
    const { text } = await readEvent(resumed as Response);
    expect(text).toContain('"id":"slow-call"');
    expect(text).toContain('because');
  });

  it('frees the place of the stream of a session', async () => {
    const session = await openSession('2025-11-25');
    const disconnect = new AbortController();
    expect((await send('GET', undefined, session, disconnect.signal)).status).toBe(200);
    expect((await send('GET', undefined, session)).status).toBe(409);
    disconnect.abort();
    const isFree = async () => (await send('GET', undefined, session)).status === 200;
    await until('another stream can be opened', isFree, 2_000);
  });
});
