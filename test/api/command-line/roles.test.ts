/** Runs each role in its own process, on real servers: Kafka, registry, ClickHouse, Postgres. */
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { Kafka, logLevel } from 'kafkajs';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { openInProcessLog } from '../../../infra/event-log/in-process/in-process-log.ts';
import { runEvents, topics } from '../../../schemas/topics.ts';
import { allocateKafkaTopics } from '../../engines/own-servers.ts';
import { stackPart } from '../../engines/stack.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';
import { until } from '../../infra/until.ts';
import { toLogMessage } from '../../pipelines/ingest/sink/sink-under-test.ts';
import { runEvent } from '../../pipelines/runs/run-events.ts';
import { type RoleProcess, startRole } from '../../role-process.ts';
import { logger } from '../../silent-logger.ts';
import { runCommand } from './run-command.ts';

vi.setConfig({ testTimeout: 120_000, hookTimeout: 180_000 });

const kafkaPart = stackPart('kafka');
const registryPart = stackPart('registry');
const apiKey = `test-${randomBytes(16).toString('hex')}`;

describe.runIf(kafkaPart && registryPart)('roles in separate processes', () => {
  let stores: FreshStores;
  let kafka: ReturnType<typeof allocateKafkaTopics>;
  let environment: Record<string, string>;
  let api: RoleProcess;
  let secondApi: RoleProcess;
  let ingest: RoleProcess;
  const all: RoleProcess[] = [];

  const start = async (role: 'api' | 'ingest' | 'tools', more: Record<string, string> = {}) => {
    const started = await startRole(role, { ...environment, ...more });
    all.push(started);
    return started;
  };

  beforeAll(async () => {
    stores = await freshStores({ migrated: false });
    const { clickhouseUrl, databaseUrl } = stores;
    const addresses = {
      clickhouseUrl,
      databaseUrl,
      kafkaBrokers: kafkaPart?.brokers,
      schemaRegistryUrl: registryPart?.url,
    };
    kafka = allocateKafkaTopics(
      addresses as Parameters<typeof allocateKafkaTopics>[0],
      `roles-${randomBytes(6).toString('hex')}`,
    );
    environment = {
      ...kafka.environment,
      RUNLAKE_CLICKHOUSE_URL: clickhouseUrl,
      RUNLAKE_DATABASE_URL: databaseUrl,
      RUNLAKE_SECRET_KEY: 'a secret key of the tests',
      RUNLAKE_BOOTSTRAP_API_KEY: apiKey,
      RUNLAKE_DATA_DIR: '/dev/null/none',
    };
    // Both start at the same moment, with empty stores and no Kafka topics.
    [api, secondApi, ingest] = await Promise.all([start('api'), start('api'), start('ingest')]);
  });
  afterAll(async () => {
    await Promise.all(all.map((process) => process.end('SIGKILL')));
    await stores?.close();
    await kafka?.clear();
  });

  const ask = (
    path: string,
    { at = api, method = 'GET', body }: { at?: RoleProcess; method?: string; body?: object } = {},
  ) =>
    fetch(`${at.url}${path}`, {
      method,
      headers: { 'x-api-key': apiKey, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
  const json = async (path: string) => (await ask(path)).json() as Promise<Record<string, unknown>>;
  const visible = (id: string) => until(`run ${id}`, async () => (await ask(`/runs/${id}`)).status === 200, 30_000);

  it('start at the same moment on empty stores and become ready', async () => {
    const parts = async (process: RoleProcess) => {
      const answer = await fetch(`${process.url}/ready`);
      return { status: answer.status, parts: Object.keys(((await answer.json()) as { parts: object }).parts).sort() };
    };
    const apiParts = ['clickhouse', 'jobs', 'kafka', 'postgres', 'schema_registry'];
    expect(await parts(api)).toEqual({ status: 200, parts: apiParts });
    expect(await parts(secondApi)).toEqual({ status: 200, parts: apiParts });
    expect(await parts(ingest)).toEqual({
      status: 200,
      parts: [...apiParts, 'sink', 'usage_roll_up'].sort(),
    });
    expect(await (await fetch(`${ingest.url}/metrics`)).text()).toContain('runlake_sink_insert_batch_rows');
  });

  it('accept runs in one process, store and count them in another, and read them through a third', async () => {
    const id = randomUUID();
    const run = { id, name: 'handed over', run_type: 'chain', inputs: { a: 1 }, start_time: new Date().toISOString() };
    expect((await ask('/runs', { method: 'POST', body: run })).status).toBe(202);
    await visible(id);
    expect(await (await ask(`/runs/${id}`, { at: secondApi })).json()).toMatchObject({
      name: 'handed over',
      inputs: { a: 1 },
    });
    const [workspace] = (await (await ask('/workspaces')).json()) as { id: string }[];
    const range = `start_time=2020-01-01&end_time=2100-01-01&workspace_ids=${workspace?.id}`;
    const counted = async () => {
      const { usage } = (await json(`/api/v1/orgs/current/billing/granular-usage?${range}`)) as {
        usage: { traces: number }[];
      };
      return usage.reduce((sum, { traces }) => sum + traces, 0) >= 1;
    };
    await until('usage', counted, 30_000);
  });

  it('apply a patch by id alone to its run, also in a process that did not receive the post', async () => {
    const id = randomUUID();
    const run = { id, name: 'patched', run_type: 'chain', inputs: {}, start_time: new Date().toISOString() };
    expect((await ask('/runs', { method: 'POST', body: run })).status).toBe(202);
    const end = { outputs: { done: true }, end_time: new Date().toISOString() };
    const [sameProcess, otherProcess] = await Promise.all([
      ask(`/runs/${id}`, { method: 'PATCH', body: end }),
      ask(`/runs/${id}`, { method: 'PATCH', body: { tags: ['far'] }, at: secondApi }),
    ]);
    expect([sameProcess.status, otherProcess.status]).toEqual([202, 202]);
    await until(
      'both patches',
      async () => {
        const { outputs, tags } = await json(`/runs/${id}`);
        return JSON.stringify([outputs, tags]) === '[{"done":true},["far"]]';
      },
      30_000,
    );
    const unknown = await ask(`/runs/${randomUUID()}`, { method: 'PATCH', body: end });
    expect(unknown.status).toBe(404);
  });

  it('change and delete feedback right after it was sent', async () => {
    const id = randomUUID();
    const feedback = { id, run_id: randomUUID(), key: 'quality', score: 0.5, comment: 'first' };
    expect((await ask('/feedback', { method: 'POST', body: feedback })).status).toBe(200);
    const sameProcess = await ask(`/feedback/${id}`, { method: 'PATCH', body: { score: 0.9 } });
    expect(await sameProcess.json()).toMatchObject({ score: 0.9, comment: 'first' });
    const again = await ask(`/feedback/${id}`, { method: 'PATCH', body: { comment: 'second' } });
    expect(await again.json()).toMatchObject({ score: 0.9, comment: 'second' });
    await until(
      'the last patch',
      async () => (await ask(`/feedback/${id}`, { at: secondApi }).then((answer) => answer.text())).includes('second'),
      30_000,
    );
    expect((await ask(`/feedback/${id}`, { method: 'DELETE', at: secondApi })).status).toBe(200);
    await until('the deletion', async () => (await ask(`/feedback/${id}`)).status === 404, 30_000);
  });

  it('change feedback in a process that did not receive it', async () => {
    const id = randomUUID();
    const feedback = { id, run_id: randomUUID(), key: 'quality', score: 0.5 };
    expect((await ask('/feedback', { method: 'POST', body: feedback })).status).toBe(200);
    const otherProcess = await ask(`/feedback/${id}`, { method: 'PATCH', body: { score: 0.9 }, at: secondApi });
    expect({ status: otherProcess.status, body: await otherProcess.json() }).toMatchObject({
      status: 200,
      body: { score: 0.9 },
    });
  });

  it('serve tools in a process without the main API, which read what another process accepted', async () => {
    const tools = await start('tools', { RUNLAKE_TOOLS_CORS_ORIGINS: 'https://app.example' });
    await until('the tool server', () => /serves tools at/.test(tools.output()));
    const [, url] = /serves tools at (\S+)/.exec(tools.output()) ?? [];
    const id = randomUUID();
    const time = new Date().toISOString();
    const run = {
      id,
      name: 'for tools',
      run_type: 'chain',
      inputs: { a: 1 },
      start_time: time,
      session_name: 'toolbox',
    };
    expect((await ask('/runs', { method: 'POST', body: run })).status).toBe(202);
    await visible(id);
    const call = async (headers: Record<string, string> = { 'langsmith-api-key': apiKey }) => {
      const params = { name: 'fetch_runs', arguments: { project_name: 'toolbox', limit: 1, page_number: 1 } };
      const response = await fetch(String(url), {
        method: 'POST',
        headers: { accept: 'application/json, text/event-stream', 'content-type': 'application/json', ...headers },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
      });
      return { status: response.status, body: (await response.json()) as { result?: { structuredContent: object } } };
    };
    expect((await call()).body.result?.structuredContent).toMatchObject({ runs: [{ id, name: 'for tools' }] });
    expect((await call({ 'langsmith-api-key': 'unknown' })).status).toBe(401);
    for (const [origin, status] of [
      ['https://app.example', 200],
      ['http://localhost:6274', 403],
    ] as const)
      expect((await call({ 'langsmith-api-key': apiKey, origin })).status).toBe(status);
  });

  it('run commands with the same variables and no data folder', async () => {
    const { code, text } = await runCommand(['keys', 'list'], environment);
    expect(text).toContain('Bootstrap admin key');
    expect(code).toBe(0);
  });

  it('write records that cannot be stored to the dead-letter queue in Kafka, which lists, shows and replays them', async () => {
    const client = new Kafka({ brokers: String(kafkaPart?.brokers).split(','), logLevel: logLevel.NOTHING });
    const producer = client.producer({ allowAutoTopicCreation: false });
    await producer.connect();
    const topic = `${environment.RUNLAKE_KAFKA_TOPIC_PREFIX}run-events`;
    await producer.send({
      topic,
      acks: -1,
      messages: [{ key: 'k', value: 'not a record', headers: { from: 'a test' } }],
    });
    await producer.disconnect();
    const deadLetters = async () => {
      const { text } = await runCommand(['dlq', 'list', '--json'], environment);
      return text.split('\n').flatMap((line) => (line.startsWith('{"id"') ? [JSON.parse(line) as { id: string }] : []));
    };
    await until('the dead-letter record', async () => (await deadLetters()).length === 1, 60_000);
    const [{ id } = { id: '' }] = await deadLetters();
    expect(id).toMatch(/^run-events\/\d\/0$/);
    expect((await runCommand(['dlq', 'show', id], environment)).text).toMatch(/Header from +a test|not a record/);
    const refused = await runCommand(['dlq', 'replay', id], environment);
    expect(refused).toMatchObject({ code: 1, text: expect.stringContaining('not replayed: its bytes cannot be read') });
    const forced = await runCommand(['dlq', 'replay', id, '--force'], environment);
    expect(forced).toMatchObject({ code: 0, text: expect.stringContaining(`${id}: replayed.`) });
    await until('the dead-letter record of the replay', async () => (await deadLetters()).length === 2, 60_000);
  });

  it('stop api after its accepted runs are in Kafka and ingest after its open batch is stored; the next process resumes', async () => {
    const ids = Array.from({ length: 200 }, () => randomUUID());
    const post = ids.map((id) => ({
      id,
      trace_id: id,
      name: 'last',
      run_type: 'chain',
      inputs: {},
      dotted_order: makeDottedOrder(id),
    }));
    const body = JSON.stringify({ post });
    const asked = request(`${secondApi.url}/runs/batch`, {
      method: 'POST',
      agent: false,
      headers: {
        'x-api-key': apiKey,
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
        expect: '100-continue',
      },
    });
    asked.flushHeaders();
    // The headers have arrived; the body is sent after the process received its stop signal.
    await once(asked, 'continue');
    const ended = secondApi.end();
    asked.end(body);
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    answer.resume();
    expect(answer.statusCode).toBe(202);
    expect(await ended).toBe(0);
    expect(await ingest.end()).toBe(0);
    expect(ingest.output()).not.toContain('part failed to stop');
    ingest = await start('ingest');
    const stored = async () => {
      const sql = "SELECT count() AS runs FROM runs FINAL WHERE name = 'last'";
      return Number((await stores.clickhouse.query<{ runs: number }>({ name: 'test', sql }))[0]?.runs);
    };
    await until('the last runs', async () => (await stored()) === ids.length, 60_000);
  });

  it('do not start on Kafka before the events of the in-process log are stored', async () => {
    const own = await freshStores();
    const open = () =>
      openInProcessLog({
        ...own,
        topics,
        partitions: 1,
        maxPendingBytes: 2 ** 20,
        logger,
      });
    onTestFinished(() => own.close());
    const former = await open();
    await former.publish(runEvents, [toLogMessage(runEvent())]);
    await former.close();
    const { clickhouseUrl, databaseUrl } = own;
    const onKafka = { ...environment, RUNLAKE_CLICKHOUSE_URL: clickhouseUrl, RUNLAKE_DATABASE_URL: databaseUrl };
    const refused = await runCommand(['ingest'], { ...onKafka, RUNLAKE_METRICS_PORT: '0' });
    expect(refused.text).toMatch(/events .* not stored yet\.\nStart `runlake all` once without RUNLAKE_KAFKA_BROKERS/);
    expect(refused.code).toBe(1);
    const next = await open();
    const limits = { rows: 10, bytes: 10_000 };
    await next.subscribe({ topic: runEvents, group: 'test', limits, handle: async () => {} });
    await next.close();
    await start('ingest', onKafka);
  });
});

function makeDottedOrder(id: string): string {
  return `${new Date().toISOString().replace(/[-:.Z]/g, '')}000Z${id}`;
}
