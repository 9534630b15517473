/** Two agent roles on Kafka and a sink beside them: what dies in the middle of a run, the others go on without. */
import { fileURLToPath } from 'node:url';
import { Client } from '@langchain/langgraph-sdk';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { type FreshStores, freshStores } from '../engines/stores.ts';
import { until } from '../infra/until.ts';
import { type RoleProcess, startRole } from '../role-process.ts';
import { attemptsOf, type RunOnThread, readToEnd, written } from './agent-reader.ts';
import { startOwn } from './own-servers.ts';
import { deadlineMs } from './pipeline.ts';

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

const apiKey = 'test-key-of-the-agents-under-test';
const upTo = (n: number) => Array.from({ length: n }, (_, place) => place);

describe.runIf(stackPart('kafka') && stackPart('registry'))('agent processes', () => {
  let own: Awaited<ReturnType<typeof startOwn<'kafka' | 'registry'>>>;
  let stores: FreshStores;
  let sink: RoleProcess;
  let agents: { readonly role: RoleProcess; readonly client: Client }[];

  const environment = () => ({
    RUNLAKE_KAFKA_BROKERS: own.kafka.values.brokers ?? '',
    RUNLAKE_SCHEMA_REGISTRY_URL: own.registry.values.url ?? '',
    RUNLAKE_CLICKHOUSE_URL: stores.clickhouseUrl,
    RUNLAKE_DATABASE_URL: stores.databaseUrl,
    RUNLAKE_KAFKA_PARTITIONS: '2',
    RUNLAKE_KAFKA_SESSION_TIMEOUT_MS: '6000',
    RUNLAKE_SECRET_KEY: 'a secret key of the tests',
    RUNLAKE_BOOTSTRAP_API_KEY: apiKey,
    RUNLAKE_DATA_DIR: '/dev/null/none',
    RUNLAKE_CUT_MS: '100',
    RUNLAKE_PUBLISH_TIMEOUT_MS: '3000',
    RUNLAKE_AGENTS_FILE: fileURLToPath(new URL('../agents/projects/basic/langgraph.json', import.meta.url)),
    RUNLAKE_AGENTS_PORT: '0',
    RUNLAKE_AGENTS_TYPES_SECONDS: '0',
    RUNLAKE_AGENTS_LEASE_MS: '3000',
    RUNLAKE_AGENTS_WORKERS: '1',
    // Of four runs each of the two has half, whoever hears of them first.
    RUNLAKE_AGENTS_RUNS_PER_WORKER: '2',
  });
  async function startAgents() {
    const role = await startRole('agents', environment());
    const address = () => /Runlake runs agents at (\S+)/.exec(role.output())?.[1];
    await until('an agent server to answer', () => address() !== undefined, deadlineMs);
    return { role, client: new Client({ apiUrl: address() as string, apiKey, callerOptions: { maxRetries: 0 } }) };
  }
  beforeAll(async () => {
    [own, stores] = await Promise.all([startOwn(['kafka', 'registry']), freshStores()]);
    sink = await startRole('ingest', environment());
    agents = [await startAgents(), await startAgents()];
  });
  afterAll(async () => {
    await Promise.all([sink, ...(agents ?? []).map(({ role }) => role)].map((role) => role?.end('SIGKILL')));
    await stores?.close();
    await own?.remove();
  });

  const clients = () => agents.map(({ client }) => client);
  async function begin(count: number, input: Readonly<Record<string, number>>): Promise<RunOnThread[]> {
    const client = clients()[0] as Client;
    return Promise.all(
      upTo(count).map(async () => {
        const { thread_id: threadId } = await client.threads.create();
        const run = { input, streamMode: 'custom' as const, streamResumable: true };
        const { run_id: runId } = await client.runs.create(threadId, 'burst', run);
        return { threadId, runId };
      }),
    );
  }
  const ended = async (client: Client, { threadId, runId }: RunOnThread) => ({
    run: (await client.runs.get(threadId, runId)).status,
    thread: (await client.threads.get(threadId)).status,
  });

  test('kill -9 of one that runs: another takes its runs up, readers there follow both attempts to the end', async () => {
    const [first, second] = agents as [(typeof agents)[0], (typeof agents)[0]];
    const runs = await begin(4, { n: 150, pauseMs: 20 });
    // One that stays, and one whose server dies under it.
    const stay = runs.map((run) => readToEnd([second.client], run, deadlineMs));
    const move = runs.map((run) => readToEnd([first.client, second.client], run, deadlineMs));
    await until('all to be under way', () => [...stay, ...move].every(({ parts }) => parts.length > 20), deadlineMs);
    await first.role.end('SIGKILL');
    const seen = await Promise.all(stay.map((reader) => reader.ended));
    const moved = await Promise.all(move.map((reader) => reader.ended));

    const attempts = runs.map((run, place) => attemptsOf(run, seen[place] ?? []));
    expect(Math.max(...attempts.map(({ size }) => size))).toBe(2);
    for (const [place, run] of runs.entries()) {
      expect(moved[place]).toEqual(seen[place]);
      const ofRun = attempts[place];
      expect(written(ofRun?.get(ofRun.size), 'i')).toEqual(upTo(150));
      expect(await ended(second.client, run)).toEqual({ run: 'success', thread: 'idle' });
    }
    agents = [second, await startAgents()];
    // The new process tells what is stored of them.
    const [run] = runs as [RunOnThread];
    expect(await readToEnd(clients().slice(1), run, deadlineMs).ended).toEqual(seen[0]);
  });

  test('Kafka is killed in the middle of runs and started again: nothing that was streamed is missing', async () => {
    const runs = await begin(4, { n: 150, pauseMs: 20 });
    const readers = runs.map((run, place) => readToEnd([clients()[place % 2] as Client], run, deadlineMs));
    await until('all to be under way', () => readers.every(({ parts }) => parts.length > 20), deadlineMs);
    await own.kafka.kill();
    await own.kafka.start();
    const seen = await Promise.all(readers.map((reader) => reader.ended));
    for (const [place, run] of runs.entries()) {
      const attempts = attemptsOf(run, seen[place] ?? []);
      expect(written(attempts.get(attempts.size), 'i')).toEqual(upTo(150));
      const client = clients()[0] as Client;
      expect(await ended(client, run)).toEqual({ run: 'success', thread: 'idle' });
    }
    for (const role of [sink, ...agents.map((agent) => agent.role)]) {
      expect(role.output()).not.toMatch(/unhandled|uncaught/i);
    }
  });
});
