/** Starts roles while servers are down: they wait, report it, and work once all servers are up. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from '@langchain/langgraph-sdk';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { findFreePorts } from '../../infra/embedded/free-port.ts';
import { runEvents } from '../../schemas/topics.ts';
import { builtProgram } from '../built-program.ts';
import { stackPart } from '../engines/stack.ts';
import { clusterVariable } from '../engines/stores.ts';
import { listenOnLoopback } from '../infra/listen-on-loopback.ts';
import { until } from '../infra/until.ts';
import { testSettings } from '../test-settings.ts';
import { type DedicatedServers, startDedicatedServers } from './own-servers.ts';
import { deadlineMs } from './pipeline.ts';

vi.setConfig({ testTimeout: 400_000, hookTimeout: 300_000 });

const roles = ['all', 'api', 'ingest', 'exports', 'agents', 'tools'] as const;
const apiKey = 'test-key-of-roles-that-wait';
const serverNames = ['postgres', 'clickhouse', 'kafka', 'schema_registry', 'redis'] as const;

interface StartedRole {
  readonly role: string;
  readonly url: string;
  readonly exited: Promise<number | null>;
  output(): string;
  end(signal: NodeJS.Signals): Promise<number | null>;
}

describe.runIf(stackPart('kafka') && stackPart('registry') && stackPart('redis'))(
  'roles that start before their servers',
  () => {
    const root = mkdtempSync(join(tmpdir(), 'runlake-away-'));
    const running: StartedRole[] = [];
    let own: DedicatedServers;
    let prefix = 0;

    beforeAll(async () => {
      mkdirSync(join(root, 'buckets'));
      own = await startDedicatedServers();
    });
    afterEach(async () => {
      await Promise.all(running.splice(0).map((role) => role.end('SIGKILL')));
    });
    afterAll(async () => {
      await own?.remove();
      rmSync(root, { recursive: true, force: true });
    });

    async function start(role: string, changes: Readonly<Record<string, string>> = {}): Promise<StartedRole> {
      const [main, metrics, agents] = (await findFreePorts(3)) as [number, number, number];
      const { addresses } = own;
      const env: Record<string, string | undefined> = {
        PATH: process.env.PATH,
        RUNLAKE_KAFKA_BROKERS: addresses.kafkaBrokers,
        RUNLAKE_SCHEMA_REGISTRY_URL: addresses.schemaRegistryUrl,
        RUNLAKE_CLICKHOUSE_URL: addresses.clickhouseUrl,
        ...clusterVariable(addresses.clickhouseCluster),
        RUNLAKE_DATABASE_URL: addresses.databaseUrl,
        RUNLAKE_REDIS_URL: addresses.redisUrl,
        RUNLAKE_KAFKA_TOPIC_PREFIX: `away-${prefix}.`,
        RUNLAKE_KAFKA_PARTITIONS: '2',
        ...testSettings({ kafkaSessionTimeoutMs: 6_000, insertBatchMs: 100, agentsTypesSeconds: 0 }),
        RUNLAKE_SECRET_KEY: 'a secret key of the tests',
        RUNLAKE_BOOTSTRAP_API_KEY: apiKey,
        RUNLAKE_DATA_DIR: join(root, role),
        RUNLAKE_LOCAL_EXPORT_ROOT: join(root, 'buckets'),
        RUNLAKE_PORT: String(main),
        RUNLAKE_METRICS_PORT: String(metrics),
        RUNLAKE_AGENTS_PORT: String(agents),
        RUNLAKE_TOOLS_PORT: '0',
        RUNLAKE_AGENTS_WORKERS: '1',
        ...(role === 'agents' && {
          RUNLAKE_AGENTS_FILE: fileURLToPath(new URL('../agents/projects/basic/langgraph.json', import.meta.url)),
        }),
        ...changes,
      };
      const child: ChildProcess = spawn(process.execPath, [builtProgram, role], {
        env,
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      let output = '';
      for (const stream of [child.stdout, child.stderr])
        stream?.on('data', (chunk) => {
          output += chunk;
        });
      const exited = once(child, 'exit').then(([code]) => code as number | null);
      const started: StartedRole = {
        role,
        url: `http://127.0.0.1:${role === 'all' || role === 'api' ? main : metrics}`,
        exited,
        output: () => output,
        end: async (signal) => {
          if (child.exitCode === null && child.signalCode === null) child.kill(signal);
          return exited;
        },
      };
      running.push(started);
      return started;
    }

    const isLive = ({ url }: StartedRole) =>
      fetch(`${url}/ok`).then(
        ({ status }) => status === 200,
        () => false,
      );

    /** Returns the status of `/ready` and the parts that it lists as down. */
    async function readiness({ url }: StartedRole): Promise<{ status: number; down: string[] }> {
      const answer = await fetch(`${url}/ready`);
      const { parts } = (await answer.json()) as { parts: Record<string, { up: boolean }> };
      return { status: answer.status, down: Object.keys(parts).filter((name) => !parts[name]?.up) };
    }

    async function untilDown(role: StartedRole, expected: readonly string[]): Promise<void> {
      let last: unknown;
      const names = [...expected].sort().join();
      await until(
        `${role.role} to name ${names}`,
        async () => {
          last = await readiness(role).catch(String);
          return typeof last === 'object' && (last as { down: string[] }).down.sort().join() === names;
        },
        deadlineMs,
      ).catch((error) => {
        throw new Error(`${error}; last: ${JSON.stringify(last)}\n${role.output()}`);
      });
    }

    const ask = async (url: string, path: string, body?: object) => {
      const answer = await fetch(`${url}${path}`, {
        method: body === undefined ? 'GET' : 'POST',
        headers: { 'x-api-key': apiKey, 'content-type': 'application/json' },
        ...(body && { body: JSON.stringify(body) }),
      });
      return { status: answer.status, body: (await answer.json()) as Record<string, string> & { id: string }[] };
    };

    test('all servers are down; they come up one after the other, and every role becomes ready and works', async () => {
      const servers = [own.postgres, own.clickhouse, own.kafka, own.registry, own.redis];
      await Promise.all(servers.map((server) => server.kill()));
      const started = await Promise.all(roles.map((role) => start(role)));
      const [all, api] = started as [StartedRole, StartedRole];
      for (const role of started) {
        await until(`${role.role} to listen`, () => isLive(role), deadlineMs);
        await untilDown(role, [...serverNames, 'start']);
        expect((await readiness(role)).status).toBe(503);
      }
      const refused = await fetch(`${api.url}/api/v1/sessions`, { headers: { 'x-api-key': apiKey } });
      expect([refused.status, refused.headers.has('retry-after')]).toEqual([503, true]);
      expect(await refused.json()).toMatchObject({ code: 'STARTING', detail: expect.stringContaining('postgres') });

      const order = [
        ['redis', own.redis],
        ['clickhouse', own.clickhouse],
        ['schema_registry', own.registry],
        ['postgres', own.postgres],
      ] as const;
      const away: string[] = [...serverNames];
      for (const [name, server] of order) {
        await server.start();
        away.splice(away.indexOf(name), 1);
        for (const role of started) await untilDown(role, [...away, 'start']);
      }
      await own.kafka.start();
      for (const role of started) {
        await untilDown(role, []);
        expect(role.output()).toMatch(/"server":"kafka".*"waiting for a server"/);
      }

      // `api` accepts a run, `ingest` stores it.
      const now = Date.now() - 60_000;
      const id = '0f000000-0000-4000-8000-000000000001';
      const dottedOrder = `${new Date(now).toISOString().replace(/[-:.]/g, '').replace('Z', '000Z')}${id}`;
      const run = {
        id,
        trace_id: id,
        dotted_order: dottedOrder,
        name: 'first',
        run_type: 'chain',
        session_name: 'shop',
      };
      expect(
        (await ask(api.url, '/runs', { ...run, start_time: new Date(now).toISOString(), inputs: {} })).status,
      ).toBe(202);
      const isStored = async (url: string) => (await ask(url, `/api/v1/runs/${id}`)).status === 200;
      await until('the run to be stored', () => isStored(api.url), deadlineMs);
      await until('the run to be read through `all`', () => isStored(all.url), deadlineMs);

      // `exports` or `all` exports it.
      const { body: sessions } = await ask(api.url, '/api/v1/sessions?name=shop');
      const place = { destination_type: 'local', display_name: 'lake', config: { prefix: 'out' } };
      const destination = await ask(api.url, '/api/v1/bulk-exports/destinations', place);
      const made = await ask(api.url, '/api/v1/bulk-exports', {
        bulk_export_destination_id: destination.body.id,
        session_id: sessions[0]?.id,
        start_time: new Date(now - 3_600_000).toISOString(),
        end_time: new Date(now + 30_000).toISOString(),
      });
      expect(made).toMatchObject({ status: 200 });
      const statusOf = async () => (await ask(api.url, `/api/v1/bulk-exports/${made.body.id}`)).body.status;
      await until('the export to end', async () => (await statusOf()) === 'COMPLETED', deadlineMs);

      // `agents` executes a graph.
      const agents = started[4] as StartedRole;
      const apiUrl = /Runlake runs agents at (\S+)/.exec(agents.output())?.[1] as string;
      const client = new Client({ apiUrl, apiKey, callerOptions: { maxRetries: 0 } });
      expect(await client.runs.wait(null, 'burst', { input: { n: 3 } })).toMatchObject({ done: 3 });
      for (const role of started) expect(await role.end('SIGTERM')).toBe(0);
    });

    test.each(roles)('%s: SIGTERM ends the wait for servers that accept connections and never answer', async (role) => {
      prefix++;
      const sockets = new Set<Socket>();
      const silent = createServer((socket) => void sockets.add(socket));
      const at = `127.0.0.1:${await listenOnLoopback(silent)}`;
      onTestFinished(() => {
        for (const socket of sockets) socket.destroy();
        silent.close();
      });
      const started = await start(role, {
        RUNLAKE_KAFKA_BROKERS: at,
        RUNLAKE_SCHEMA_REGISTRY_URL: `http://${at}`,
        RUNLAKE_CLICKHOUSE_URL: `http://${at}/runlake`,
        RUNLAKE_DATABASE_URL: `postgres://${at}/runlake`,
        RUNLAKE_REDIS_URL: `redis://${at}`,
      });
      await until('the role to listen', () => isLive(started), deadlineMs);
      await until('the role to connect', () => sockets.size >= serverNames.length, deadlineMs);
      const endedAtMs = performance.now();
      expect(await started.end('SIGTERM')).toBe(143);
      expect(performance.now() - endedAtMs).toBeLessThan(4_000);
    });

    test.each(['api', 'ingest'])(
      '%s: a wrong password ends the start, also while another server is away',
      async (role) => {
        prefix++;
        const databaseUrl = new URL(own.addresses.databaseUrl);
        databaseUrl.password = 'wrong';
        const started = await start(role, {
          RUNLAKE_DATABASE_URL: databaseUrl.href,
          RUNLAKE_KAFKA_BROKERS: '127.0.0.1:1',
        });
        expect(await started.exited).toBe(1);
        expect(started.output()).toContain('Postgres denied access');
      },
    );

    test('a schema that the registry refuses ends the start', async () => {
      prefix++;
      const foreign = { type: 'record', name: 'Foreign', fields: [{ name: 'x', type: 'int' }] };
      const subject = `away-${prefix}.${runEvents.name}-value`;
      const registered = await fetch(`${own.addresses.schemaRegistryUrl}/subjects/${subject}/versions`, {
        method: 'POST',
        headers: { 'content-type': 'application/vnd.schemaregistry.v1+json' },
        body: JSON.stringify({ schema: JSON.stringify(foreign) }),
      });
      expect(registered.status).toBe(200);
      await fetch(`${own.addresses.schemaRegistryUrl}/config/${subject}`, {
        method: 'PUT',
        headers: { 'content-type': 'application/vnd.schemaregistry.v1+json' },
        body: JSON.stringify({ compatibility: 'FULL' }),
      });
      const started = await start('api');
      expect(await started.exited).toBe(1);
      expect(started.output()).toContain(subject);
    });
  },
);
