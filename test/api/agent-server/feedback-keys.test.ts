import { randomUUID } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { feedbackLinkHours } from '../../../api/command-line/agent-work.ts';
import { operations } from '../../../api/main/operations.ts';
import { buildServer } from '../../../api/server/build-server.ts';
import { createCronRun, fireCrons } from '../../../pipelines/agents/crons/fire-cron.ts';
import { forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';
import { logger } from '../../silent-logger.ts';
import { startAgentServer } from './start-agent-server.ts';
import { all, type Part } from './stream-parts.ts';

/** `feedback_keys`: links at the end of a stream, which accept feedback on the main API without a key. */

const publicUrl = 'https://runlake.example/api/v1/';
const agent = forSuite(() => startAgentServer({ config: { publicUrl } }));
let main: FastifyInstance;
beforeAll(async () => {
  const { answering: services } = agent;
  main = await buildServer({ config: services.config, services, logger, operations });
});
afterAll(async () => {
  await main?.close();
});

type Links = Readonly<Record<string, string>>;

const input = { messages: [{ role: 'user', content: 'hi' }] };
const feedbackKeys = ['quality', 'status'];
const getRunId = ([first]: readonly Part[]) => (first as { data: { run_id: string } }).data.run_id;
const getLinks = (parts: readonly Part[]) => parts.at(-1)?.data as Links;

/** Sends a request to the link at the main API, without a key. */
async function openLink(link: string, method: 'GET' | 'POST', feedback?: object | string) {
  expect(link).toMatch(/^https:\/\/runlake\.example\/api\/v1\/feedback\/tokens\/[0-9a-f-]{36}$/);
  const url = new URL(link).pathname + (typeof feedback === 'string' ? feedback : '');
  const answer = await main.inject({ method, url, ...(typeof feedback === 'object' && { payload: feedback }) });
  return { status: answer.statusCode, json: answer.json() };
}

async function readFeedback(runId: string): Promise<Record<string, unknown>[]> {
  const headers = { 'x-api-key': agent.owner.workspaceKeys[0] };
  return (await main.inject({ method: 'GET', url: `/feedback?run=${runId}`, headers })).json();
}

async function stored(runId: string, expected: object) {
  await until('feedback', async () => (await readFeedback(runId)).length > 0);
  expect(await readFeedback(runId)).toEqual([expect.objectContaining(expected)]);
}

describe('a stream', () => {
  it('ends with a link for each key, which accepts feedback on that run with that key', async () => {
    const { thread_id: threadId } = await agent.client.threads.create();
    const parts = await all(agent.client.runs.stream(threadId, 'echo', { input, feedbackKeys }));
    expect(parts.filter(({ event }) => event === 'feedback')).toEqual([parts.at(-1)]);
    expect(Object.keys(getLinks(parts))).toEqual(feedbackKeys);
    const runId = getRunId(parts);
    const feedback = { score: 0.5, comment: 'good', value: { a: 1 }, correction: { b: 2 }, metadata: { from: 'page' } };
    expect(await openLink(getLinks(parts).quality!, 'POST', feedback)).toEqual({
      status: 200,
      json: { run_id: runId, key: 'quality' },
    });
    const { metadata, ...fields } = feedback;
    await stored(runId, {
      key: 'quality',
      ...fields,
      feedback_source: expect.objectContaining({ type: 'api', metadata }),
    });
  });

  it('of a stateless run ends with links, too, which also accept feedback by GET; later feedback replaces earlier', async () => {
    const parts = await all(agent.client.runs.stream(null, 'echo', { input, feedbackKeys: ['thumbs'] }));
    const link = getLinks(parts).thumbs!;
    for (const query of ['?score=false&comment=no', '?score=1&value=yes&comment=well+done']) {
      expect((await openLink(link, 'GET', query)).status).toBe(200);
    }
    const runId = getRunId(parts);
    await until('the second feedback', async () => (await readFeedback(runId))[0]?.comment === 'well done');
    await stored(runId, { key: 'thumbs', score: 1, value: 'yes', comment: 'well done' });
  });

  it('that is joined has the same links, also after the end if it is resumable', async () => {
    const { thread_id: threadId } = await agent.client.threads.create();
    const payload = { input, feedbackKeys, streamResumable: true };
    const { run_id: runId } = await agent.client.runs.create(threadId, 'echo', payload);
    await agent.client.runs.join(threadId, runId);
    const join = (lastEventId: string) => all(agent.client.runs.joinStream(threadId, runId, { lastEventId }));
    const parts = await join('-1');
    expect(parts.at(-1)?.event).toBe('feedback');
    expect((await join('-1')).at(-1)).toEqual(parts.at(-1));
    expect((await join(parts.at(-2)?.id ?? '')).map(({ event }) => event)).toEqual(['feedback']);
    expect(await join(parts.at(-1)?.id ?? '')).toEqual([]);
    expect(await agent.client.runs.get(threadId, runId)).toMatchObject({ kwargs: { feedback_keys: feedbackKeys } });
  });

  it('of a thread has the links before the end of each run', async () => {
    const { thread_id: threadId } = await agent.client.threads.create();
    const payload = { input, feedbackKeys, streamResumable: true };
    const { run_id: runId } = await agent.client.runs.create(threadId, 'echo', payload);
    await agent.client.runs.join(threadId, runId);
    const stop = new AbortController();
    const from = { lastEventId: '-', signal: stop.signal };
    const stream = agent.client.threads.joinStream(threadId, from)[Symbol.asyncIterator]();
    const events: string[] = [];
    for (let next = await stream.next(); !next.done; next = await stream.next()) {
      const part = next.value as Part;
      events.push(part.event);
      if ((part.data as { status?: string }).status === 'run_done') break;
    }
    expect(events.slice(-2)).toEqual(['feedback', 'metadata']);
    stop.abort();
  });

  it('of a failed run has the links, and one without feedback keys has none', async () => {
    const failed = { input: { how: 'fail' }, feedbackKeys: ['why'] };
    const parts = await all(agent.client.runs.stream(null, 'misbehave', failed));
    expect(parts.slice(-2).map(({ event }) => event)).toEqual(['error', 'feedback']);
    const without = await all(agent.client.runs.stream(null, 'echo', { input, feedbackKeys: [] }));
    expect(without.map(({ event }) => event)).not.toContain('feedback');
  });
});

it('crons have links for each of their runs', async () => {
  const { thread_id: threadId } = await agent.client.threads.create();
  const cron = { assistant_id: 'echo', schedule: '30 9 1 1 *', input, stream_resumable: true };
  const path = `/threads/${threadId}/runs/crons`;
  const made = await agent.ask('POST', path, { ...cron, feedback_keys: feedbackKeys });
  expect([made.status, await made.json()]).toMatchObject([200, { payload: { feedback_keys: feedbackKeys } }]);
  const { agents } = agent.services;
  const fired = await fireCrons({
    database: agent.database,
    deploymentId: agent.owner.id,
    createCronRun: (tx, due) => createCronRun(tx, agent.owner.id, due, agents),
    logger,
    now: async () => Date.now() + 366 * 86_400_000,
  });
  expect(fired).toBe(1);
  agent.executor.wake();
  const [run] = await agent.client.runs.list(threadId);
  const runId = run?.run_id ?? '';
  await agent.client.runs.join(threadId, runId);
  const parts = await all(agent.client.runs.joinStream(threadId, runId, { lastEventId: '-1' }));
  expect(Object.keys(getLinks(parts))).toEqual(feedbackKeys);
  expect((await openLink(getLinks(parts).quality!, 'POST', { score: 1 })).status).toBe(200);
  await stored(runId, { key: 'quality', score: 1 });
});

describe('a link', () => {
  let links: Links;
  let runId: string;
  beforeAll(async () => {
    const parts = await all(agent.client.runs.stream(null, 'echo', { input, feedbackKeys }));
    links = getLinks(parts);
    runId = getRunId(parts);
  });

  it('applies only to its key and run, whatever the body contains', async () => {
    const body = { key: 'stolen', run_id: agent.owner.id, id: agent.owner.id, score: 3 };
    expect(await openLink(links.status!, 'POST', body)).toMatchObject({
      status: 200,
      json: { run_id: runId, key: 'status' },
    });
    await stored(runId, { key: 'status', score: 3, run_id: runId });
  });

  it('accepts requests from pages of any origin, unlike the rest of the main API', async () => {
    const { pathname: url } = new URL(links.status!);
    const origin = 'https://page.example';
    const asked = { 'access-control-request-method': 'POST', 'access-control-request-headers': 'content-type' };
    const preflight = await main.inject({ method: 'OPTIONS', url, headers: { origin, ...asked } });
    expect([preflight.statusCode, preflight.headers]).toEqual([
      204,
      expect.objectContaining({ 'access-control-allow-origin': '*', 'access-control-allow-headers': 'content-type' }),
    ]);
    const accepted = await main.inject({ method: 'POST', url, headers: { origin }, payload: { score: 3 } });
    expect([accepted.statusCode, accepted.headers['access-control-allow-origin']]).toEqual([200, '*']);
    const other = await main.inject({ method: 'OPTIONS', url: '/feedback', headers: { origin, ...asked } });
    expect([other.statusCode, other.headers['access-control-allow-origin']]).toEqual([405, undefined]);
  });

  it('cannot be forged', async () => {
    for (const token of [randomUUID(), runId, `${links.quality!.slice(-36)}0`, 'x']) {
      const answer = await main.inject({ method: 'POST', url: `/feedback/tokens/${token}`, payload: { score: 1 } });
      expect([answer.statusCode, answer.json().code]).toEqual([404, 'NOT_FOUND']);
    }
  });

  it.each([
    ['POST', { score: 'much' }],
    ['POST', { comment: 7 }],
    ['POST', { value: ['a'] }],
    ['GET', '?score=much'],
    ['GET', ''],
    ['POST', { metadata: { only: true } }],
  ] as const)('rejects invalid feedback: %s %j', async (method, feedback) => {
    expect((await openLink(links.quality!, method, feedback)).status).toBe(422);
  });

  it('expires', async () => {
    const headers = { 'x-api-key': agent.owner.workspaceKeys[0] };
    const listed = await main.inject({ method: 'GET', url: `/feedback/tokens?run_id=${runId}`, headers });
    const [first] = listed.json() as [{ id: string; expires_at: string }, unknown];
    const hours = (Date.parse(first.expires_at) - Date.now()) / 3_600_000;
    expect([hours > feedbackLinkHours - 0.1, hours < feedbackLinkHours]).toEqual([true, true]);
    await agent.database.execute('UPDATE feedback_tokens SET expires_at = now() WHERE run_id = $1', [runId]);
    expect(await openLink(links.quality!, 'POST', { score: 1 })).toMatchObject({
      status: 403,
      json: { code: 'LINK_EXPIRED' },
    });
  });
});

it('rejects feedback keys if the address of the main API is not configured, and names the setting', async () => {
  const { agents } = agent.services;
  Object.assign(agents, { acceptsFeedbackKeys: false });
  onTestFinished(() => {
    Object.assign(agents, { acceptsFeedbackKeys: true });
  });
  const answer = await agent.ask('POST', '/runs', { assistant_id: 'echo', feedback_keys: ['a'] });
  expect([answer.status, await answer.text()]).toEqual([422, expect.stringContaining('RUNLAKE_PUBLIC_URL')]);
  for (const feedback_keys of [[''], ['x'.repeat(181)], 'a', Array.from({ length: 101 }, (_, i) => `k${i}`)]) {
    expect((await agent.ask('POST', '/runs', { assistant_id: 'echo', feedback_keys })).status).toBe(422);
  }
  expect((await agent.ask('POST', '/runs', { assistant_id: 'echo', feedback_keys: [] })).status).toBe(200);
  const cron = { assistant_id: 'echo', schedule: '* * * * *', feedback_keys: ['a'] };
  const refused = await agent.ask('POST', '/runs/crons', cron);
  expect([refused.status, await refused.text()]).toEqual([422, expect.stringContaining('RUNLAKE_PUBLIC_URL')]);
});
