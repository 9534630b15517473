import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { endSeq } from '../../../pipelines/agents/streams/stream-types.ts';
import { createDeletedThreadPurge } from '../../../pipelines/agents/threads/deleted-threads.ts';
import { streamEvents } from '../../../schemas/topics.ts';
import { untilStored } from '../../engines/settling.ts';
import { forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';
import { type AgentServerUnderTest, startAgentServer } from './start-agent-server.ts';

/** A new thread with the id of a deleted thread, under custom authentication: Ada deletes a thread, Ben reuses its id. */

const front = forSuite(() => startAgentServer({ project: 'auth' }));
const otherFront = forSuite(() => startAgentServer({ project: 'auth', shareStoresWith: front }));

type Name = 'ada' | 'ben';

async function request(name: Name, method: string, path: string, body?: unknown) {
  const response = await fetch(front.url + path, {
    method,
    headers: { authorization: `Bearer secret-${name}`, 'content-type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return { status: response.status, text: await response.text() };
}

/** Executes a run whose stream is stored, on a thread that it creates if it is missing. */
async function run(name: Name, threadId: string, word: string): Promise<void> {
  const { status, text } = await request(name, 'POST', `/threads/${threadId}/runs/stream`, {
    ...{ assistant_id: 'echo', if_not_exists: 'create', stream_mode: ['values'], stream_resumable: true },
    input: { text: word },
    metadata: { word },
  });
  expect(status, text).toBe(200);
  await untilStored(front.shared.log, streamEvents);
}

/** Reads a stream until `isComplete` returns true for its text. */
async function readStream(
  { url }: AgentServerUnderTest,
  name: Name,
  path: string,
  isComplete: (text: string) => boolean,
  { lastEventId, body }: { readonly lastEventId?: string; readonly body?: unknown } = {},
): Promise<string> {
  const aborter = new AbortController();
  const response = await fetch(url + path, {
    ...(body !== undefined && { method: 'POST', body: JSON.stringify(body) }),
    headers: {
      authorization: `Bearer secret-${name}`,
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(lastEventId !== undefined && { 'last-event-id': lastEventId }),
    },
    signal: aborter.signal,
  });
  let seen = '';
  const decoder = new TextDecoder();
  const reading = (async () => {
    for await (const bytes of response.body ?? []) seen += decoder.decode(bytes, { stream: true });
  })().catch(() => undefined);
  await until('the end of the run', () => isComplete(seen));
  aborter.abort();
  await reading;
  return seen;
}

const readRunIds = (text: string) => new Set([...text.matchAll(/"run_id":"([^"]+)"/g)].map(([, id]) => id));
const hasEnd = (text: string) => text.includes('run_done');

async function listRunIds(name: Name, threadId: string): Promise<string[]> {
  const { text } = await request(name, 'GET', `/threads/${threadId}/runs`);
  return (JSON.parse(text) as { run_id: string }[]).map(({ run_id }) => run_id);
}

it('a new thread with the id of a deleted thread streams only its own events, from every start and every process', async () => {
  const threadId = randomUUID();
  await run('ada', threadId, 'first');
  const old = await readStream(front, 'ada', `/threads/${threadId}/stream`, hasEnd, { lastEventId: '-' });
  const oldEventIds = [...old.matchAll(/^id: (\d+)/gm)].map(([, id]) => id as string);
  expect((await request('ada', 'DELETE', `/threads/${threadId}`)).status).toBe(204);
  await run('ben', threadId, 'second');
  const runIds = await listRunIds('ben', threadId);
  expect(runIds).toHaveLength(1);
  for (const server of [front, otherFront]) {
    for (const lastEventId of ['-', '0', oldEventIds[0], oldEventIds.at(-1)] as string[]) {
      const path = `/threads/${threadId}/stream`;
      const text = await readStream(server, 'ben', path, hasEnd, { lastEventId });
      expect([...readRunIds(text)], lastEventId).toEqual(runIds);
    }
    for (const since of [undefined, 0, Number(oldEventIds[0])]) {
      const path = `/threads/${threadId}/stream/events`;
      const body = { channels: ['lifecycle', 'values'], ...(since !== undefined && { since }) };
      const text = await readStream(server, 'ben', path, (seen) => seen.includes('"completed"'), { body });
      expect(text.match(/"event":"completed"/g), `since ${since}`).toHaveLength(1);
      for (const id of oldEventIds) expect(text).not.toContain(`id: ${id}\n`);
    }
  }
});

it('the stored events of a deleted thread are purged after the ends of its runs, and those of the new thread stay', async () => {
  const { database, owner } = front;
  const { clickhouse } = front.shared.stores;
  const threadId = randomUUID();
  await run('ada', threadId, 'first');
  await request('ada', 'DELETE', `/threads/${threadId}`);
  await run('ben', threadId, 'second');
  const [runId] = await listRunIds('ben', threadId);
  const readStored = async () => {
    const rows = await clickhouse.query<{ run_id: string }>({
      name: 'stored-runs',
      sql: 'SELECT DISTINCT run_id FROM stream_events WHERE thread_id = {threadId:UUID}',
      params: { threadId },
    });
    return rows.map(({ run_id }) => run_id);
  };
  expect(await readStored()).toHaveLength(2);
  const purge = createDeletedThreadPurge({ clickhouse, log: front.shared.log });
  const purgeNow = () => purge(database, owner.id, new AbortController().signal);
  expect(await purgeNow()).toBe(0);
  const makeDue = () =>
    database.execute('UPDATE agents.deleted_threads SET purge_at = now() WHERE thread_id = $1', [threadId]);
  await makeDue();
  await database.execute('UPDATE agents.runs SET removed = true WHERE run_id = $1', [runId]);
  expect(await purgeNow()).toBe(0);
  await database.execute('UPDATE agents.runs SET removed = false WHERE run_id = $1', [runId]);
  /** The server may execute the purge meanwhile, and a run stays until its end is marked as published. */
  const untilPurged = () =>
    until('the purge', async () => {
      await purgeNow();
      const left = await database.query('SELECT FROM agents.deleted_threads WHERE thread_id = $1', [threadId]);
      return left.length === 0;
    });
  await untilPurged();
  expect(await readStored()).toEqual([runId]);
  await request('ben', 'DELETE', `/threads/${threadId}`);
  await makeDue();
  await untilPurged();
  expect(await readStored()).toEqual([]);
});

it('the events of temporary runs are numbered below those of any thread, so its readers skip them', async () => {
  const { text } = await request('ada', 'POST', '/runs/stream', {
    ...{ assistant_id: 'echo', input: { text: 'first' }, stream_resumable: true, stream_mode: ['values'] },
  });
  const [first] = readRunIds(text);
  expect(first).toBeDefined();
  await untilStored(front.shared.log, streamEvents);
  const [row] = await front.shared.stores.clickhouse.query<{ highest: string }>({
    name: 'highest',
    sql: 'SELECT max(thread_seq) AS highest FROM stream_events WHERE run_id = {runId:UUID}',
    params: { runId: first as string },
  });
  expect(Number(row?.highest)).toBe(endSeq);
});
