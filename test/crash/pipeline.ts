import { randomBytes } from 'node:crypto';
import { clusterVariable } from '../engines/stores.ts';
import { askPostgres } from '../infra/embedded/processes.ts';
import { until } from '../infra/until.ts';
import { type RoleProcess, startRole } from '../role-process.ts';
import { joinEnvironments, testSettings } from '../test-settings.ts';
import { type FaultProxy, openFaultProxy } from './fault-proxy.ts';
import { type CommittedOffsets, watchOffsets } from './positions.ts';
import { kafkaProtocol } from './protocol.ts';

/** Addresses of the servers behind a pipeline. */
export interface Servers {
  /** Addresses of all servers of a cluster, separated by commas. */
  readonly clickhouseUrl: string;
  readonly clickhouseCluster?: string | undefined;
  readonly databaseUrl: string;
  readonly kafkaBrokers: string;
  readonly schemaRegistryUrl: string;
  readonly redisUrl?: string | undefined;
}

/** The connections of one role to the servers, each through a proxy. */
export interface ServerProxies {
  readonly kafka: FaultProxy;
  readonly registry: FaultProxy;
  readonly clickhouse: FaultProxy;
  readonly postgres: FaultProxy;
}

export type PipelineRole = 'api' | 'ingest';

/** Deadline on a busy machine. It includes the session timeout after which a consumer group removes a killed member. */
export const deadlineMs = 120_000;

/** `runlake api` and `runlake ingest` as processes, with proxies between each of them and each server. */
export class Pipeline {
  readonly topicPrefix = `crash-${randomBytes(6).toString('hex')}.`;
  readonly apiKey = `test-${randomBytes(16).toString('hex')}`;
  readonly servers: Servers;
  readonly ways: Readonly<Record<PipelineRole, ServerProxies>>;
  readonly #environment: Readonly<Record<string, string>>;
  readonly #running = new Map<PipelineRole, RoleProcess>();
  readonly #offsets: CommittedOffsets;
  /** Address of the API after its start. */
  url = 'http://127.0.0.1:0';

  private constructor(
    servers: Servers,
    serverProxies: Readonly<Record<PipelineRole, ServerProxies>>,
    environment: Readonly<Record<string, string>>,
  ) {
    this.servers = servers;
    this.ways = serverProxies;
    this.#environment = environment;
    this.#offsets = watchOffsets(servers.kafkaBrokers, this.topicPrefix);
  }

  /** Opens the proxies; {@link Pipeline.start} starts the roles. */
  static async open(servers: Servers, environment: Readonly<Record<string, string>> = {}): Promise<Pipeline> {
    const [api, ingest] = await Promise.all([openServerProxies(servers), openServerProxies(servers)]);
    return new Pipeline(servers, { api, ingest }, environment);
  }

  /** Opens the proxies and starts both roles. */
  static async started(servers: Servers, environment: Readonly<Record<string, string>> = {}): Promise<Pipeline> {
    const pipeline = await Pipeline.open(servers, environment);
    try {
      await Promise.all([pipeline.start('api'), pipeline.start('ingest')]);
    } catch (error) {
      await pipeline.close();
      throw error;
    }
    return pipeline;
  }

  process(role: PipelineRole): RoleProcess {
    return this.#running.get(role) as RoleProcess;
  }

  /** Starts a role that is not running; the API always uses the same port. */
  async start(role: PipelineRole): Promise<void> {
    const started = await startRole(role, this.buildEnvironment(role));
    this.#running.set(role, started);
    if (role === 'api') this.url = started.url;
  }

  async kill(role: PipelineRole): Promise<void> {
    await this.#running.get(role)?.end('SIGKILL');
    this.#running.delete(role);
  }

  buildEnvironment(role: PipelineRole): Record<string, string> {
    const { clickhouseUrl, clickhouseCluster, databaseUrl, schemaRegistryUrl, redisUrl } = this.servers;
    const { kafka, registry, clickhouse, postgres } = this.ways[role];
    const own = {
      RUNLAKE_KAFKA_BROKERS: `127.0.0.1:${kafka.ports[0]}`,
      RUNLAKE_SCHEMA_REGISTRY_URL: through(schemaRegistryUrl, registry),
      RUNLAKE_CLICKHOUSE_URL: through(clickhouseUrl, clickhouse),
      ...clusterVariable(clickhouseCluster),
      RUNLAKE_DATABASE_URL: through(databaseUrl, postgres),
      ...(redisUrl === undefined ? {} : { RUNLAKE_REDIS_URL: redisUrl }),
      RUNLAKE_KAFKA_TOPIC_PREFIX: this.topicPrefix,
      RUNLAKE_KAFKA_PARTITIONS: '2',
      RUNLAKE_SECRET_KEY: 'a secret key of the tests',
      RUNLAKE_BOOTSTRAP_API_KEY: this.apiKey,
      RUNLAKE_DATA_DIR: '/dev/null/none',
      RUNLAKE_SERVE_METRICS: 'true',
      RUNLAKE_PORT: new URL(this.url).port,
      ...testSettings({
        // After a kill, the group waits this long for the dead member.
        kafkaSessionTimeoutMs: 6_000,
        insertBatchMs: 100,
        rollupIntervalMs: 200,
        publishTimeoutMs: 3_000,
        queryTimeoutMs: 10_000,
      }),
    };
    return joinEnvironments(own, this.#environment);
  }

  ask(path: string, body?: object, method = body === undefined ? 'GET' : 'POST'): Promise<Response> {
    return fetch(`${this.url}${path}`, {
      method,
      headers: { 'x-api-key': this.apiKey, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
  }

  /** Returns the value of a metric of a role, summed over its labels that contain `label`. */
  metric(role: PipelineRole, name: string, label = ''): Promise<number> {
    return readMetric(this.process(role), name, label);
  }

  /** Waits until all events in the topics are stored and counted. */
  async settled(): Promise<void> {
    await until('all events to be stored', () => this.#offsets.isAtEnd().catch(() => false), deadlineMs);
    const noDirtyHours = async () =>
      (await askPostgres(this.servers.databaseUrl, 'SELECT count(*)::int FROM usage_dirty_hours'))[0] === 0;
    await until('usage to be counted', noDirtyHours, deadlineMs);
  }

  async close(): Promise<void> {
    await Promise.all([this.kill('api'), this.kill('ingest')]);
    await this.#offsets.close();
    const ways = Object.values(this.ways).flatMap((each) => Object.values(each) as FaultProxy[]);
    await Promise.all(ways.map((way) => way.close()));
  }
}

/** Returns the value of a metric of a process, summed over its labels that contain `label`. */
export async function readMetric({ url }: RoleProcess, name: string, label = ''): Promise<number> {
  const answer = await fetch(`${url}/metrics`);
  if (!answer.ok) throw new Error(`GET ${url}/metrics returned ${answer.status}`);
  return (await answer.text())
    .split('\n')
    .filter((line) => new RegExp(`^${name}[{ ]`).test(line) && line.includes(label))
    .reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
}

async function openServerProxies(servers: Servers): Promise<ServerProxies> {
  const [kafka, registry, clickhouse, postgres] = await Promise.all([
    openFaultProxy([target(`kafka://${servers.kafkaBrokers}`)], kafkaProtocol),
    openFaultProxy([target(servers.schemaRegistryUrl)]),
    openFaultProxy(servers.clickhouseUrl.split(',').map(target)),
    openFaultProxy([target(servers.databaseUrl)]),
  ]);
  return { kafka, registry, clickhouse, postgres };
}

function target(url: string): { host: string; port: number } {
  const { hostname: host, port } = new URL(url);
  return { host, port: Number(port) };
}

function through(urls: string, { ports }: FaultProxy): string {
  const addresses = urls.split(',').map((url, index) => {
    const changed = new URL(url);
    changed.host = `127.0.0.1:${ports[index]}`;
    return changed.href;
  });
  return addresses.join(',');
}
