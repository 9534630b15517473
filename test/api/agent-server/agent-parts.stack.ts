import { randomBytes } from 'node:crypto';
import { Client } from '@langchain/langgraph-sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { groupByAttempt, readToEnd, written } from '../../crash/agent-reader.ts';
import { stackPart } from '../../engines/stack.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';
import { type RoleProcess, startRole } from '../../role-process.ts';
import { joinEnvironments, testSettings } from '../../test-settings.ts';
import { addOrganization } from '../start-api.ts';
import { buildGraphsFilePath } from './start-agent-server.ts';
import { listNumbers } from './stream-parts.ts';

/** One process serves requests, others execute runs; they communicate through Postgres and Kafka. */

describe.runIf(stackPart('kafka') && stackPart('registry'))('agent server processes', () => {
  let front: RoleProcess;
  let workers: RoleProcess[] = [];
  let client: Client;

  const secretKey = randomBytes(24).toString('base64url');
  const environment = () => ({
    ...joinEnvironments(
      stores.environment,
      testSettings({ agentsTypesSeconds: 0, agentsLeaseMs: 2_000, drainTimeoutMs: 100 }),
    ),
    RUNLAKE_CLICKHOUSE_URL: stores.clickhouseUrl,
    RUNLAKE_DATABASE_URL: stores.databaseUrl,
    RUNLAKE_SECRET_KEY: secretKey,
    RUNLAKE_DATA_DIR: '/dev/null/none',
    RUNLAKE_AGENTS_FILE: buildGraphsFilePath('basic'),
    RUNLAKE_AGENTS_DEPLOYMENT: owner.id,
    RUNLAKE_AGENTS_PORT: '0',
    RUNLAKE_AGENTS_WORKERS: '1',
  });
  const startWork = () => startRole('agents', environment(), ['--work-only']);
  const startFront = async () => {
    const role = await startRole('agents', environment(), ['--front-only']);
    const address = () => /Runlake runs agents at (\S+)/.exec(role.output())?.[1];
    await until('the front process responds', () => address() !== undefined);
    const apiUrl = address() as string;
    return { role, client: new Client({ apiUrl, apiKey: owner.adminKey, callerOptions: { maxRetries: 0 } }) };
  };

  const stores = forSuite(() => freshStores());
  const owner = forSuite(() => addOrganization(stores.database, 'owner'));
  beforeAll(async () => {
    ({ role: front, client } = await startFront());
  }, 240_000);
  afterAll(async () => {
    await Promise.all([front, ...workers].map((role) => role?.end('SIGKILL')));
  });

  it('the front process serves requests and claims no runs; the streams of workers are read from the front process', async () => {
    const { thread_id: threadId } = await client.threads.create();
    expect(await client.assistants.getSchemas('steps')).toMatchObject({ graph_id: 'steps' });
    const { run_id: runId } = await client.runs.create(threadId, 'steps', {
      input: { steps: 3, text: 'a' },
      streamMode: 'custom',
      streamResumable: true,
    });
    expect((await client.runs.get(threadId, runId)).status).toBe('pending');
    workers = [await startWork()];
    const events: string[] = [];
    for await (const { event } of client.runs.joinStream(threadId, runId, { lastEventId: '-1' })) events.push(event);
    expect(events.filter((event) => event === 'custom').length).toBeGreaterThan(2);
    expect((await client.threads.getState(threadId)).values).toMatchObject({ log: ['a 1', 'a 2', 'a 3'] });
    expect(workers[0]?.output()).not.toContain('Runlake runs agents at');
  });

  it('another worker process continues the graph run of a killed one', async () => {
    const { thread_id: threadId } = await client.threads.create();
    const { run_id: runId } = await client.runs.create(threadId, 'steps', {
      input: { steps: 20, pauseMs: 100, text: 'b' },
      config: { recursion_limit: 100 },
      streamMode: 'custom',
      streamResumable: true,
    });
    const reader = readToEnd([client], { threadId, runId }, 60_000);
    await until('the run is in progress', () => reader.parts.length > 3, 30_000);
    // Either of the two workers may be executing the run, so kill both.
    await Promise.all(workers.map((worker) => worker.end('SIGKILL')));
    workers = [await startWork()];
    expect([...groupByAttempt({ threadId, runId }, await reader.ended).keys()]).toEqual([1, 2]);
    expect((await client.runs.get(threadId, runId)).status).toBe('success');
    expect((await client.threads.getState<{ log: string[] }>(threadId)).values.log).toHaveLength(20);
  });

  it('the kill of a front process does not affect graph runs, and their readers reconnect to another front process', async () => {
    const { thread_id: threadId } = await client.threads.create();
    const next = await startFront();
    const { run_id: runId } = await client.runs.create(threadId, 'burst', {
      input: { n: 100, pauseMs: 30 },
      streamMode: 'custom',
      streamResumable: true,
    });
    const reader = readToEnd([client, next.client], { threadId, runId }, 60_000);
    await until('the run is in progress', () => reader.parts.length > 20, 30_000);
    await front.end('SIGKILL');
    ({ role: front, client } = next);
    const attempts = groupByAttempt({ threadId, runId }, await reader.ended);
    expect([...attempts.keys()]).toEqual([1]);
    expect(written(attempts.get(1), 'i')).toEqual(listNumbers(100));
    expect((await client.runs.get(threadId, runId)).status).toBe('success');
  });

  it('the front process cancels a run in progress', async () => {
    const { thread_id: threadId } = await client.threads.create();
    const { run_id: runId } = await client.runs.create(threadId, 'burst', { input: { n: 10_000, pauseMs: 50 } });
    await expect.poll(async () => (await client.runs.get(threadId, runId)).status).toBe('running');
    await client.runs.cancel(threadId, runId, true);
    expect((await client.runs.get(threadId, runId)).status).toBe('interrupted');
  });
});
