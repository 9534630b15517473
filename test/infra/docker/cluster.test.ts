/** Tests the profile `cluster` as text: its servers, their configuration and the SQL of the tables on them. */
import { expect, it } from 'vitest';
import type { Layout } from '../../../infra/clickhouse/settings.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import { splitStatements } from '../../../infra/migrations/apply-clickhouse.ts';
import { buildClusterStatements } from '../../../infra/migrations/cluster-statements.ts';
import { loadMigrations } from '../../../infra/migrations/load.ts';
import {
  buildCompose,
  composeVariables,
  readText,
  readVariables,
  type Service,
  substituteVariables,
} from './compose-file.ts';

const secrets = Object.fromEntries(
  [...composeVariables].flatMap(([name, need]) => (need === 'required' ? [[name, `secret-of-${name}`]] : [])),
);
const env = readVariables(readText('infra/docker/cluster.env'));
const variables = Object.fromEntries(
  Object.entries(env).map(([name, value]) => [name, substituteVariables(value, secrets)]),
);
const { services } = buildCompose({ ...secrets, ...variables });
const config = readText('infra/docker/clickhouse/cluster.d.xml');
/** Names of the servers by shard, in the order of the configuration. */
const shards = [...config.matchAll(/<shard>([\s\S]*?)<\/shard>/g)].map(([, shard = '']) =>
  [...shard.matchAll(/<host>([\w-]+)<\/host><port>9000<\/port>/g)].map(([, host = '']) => host),
);
const servers = shards.flatMap((replicas, shard) =>
  replicas.map((name, replica) => ({ name, shard: String(shard + 1), replica: String(replica + 1) })),
);

it('has two shards of two replicas, each a service of the profile with its own volume and macros', () => {
  expect(shards.map(({ length }) => length)).toEqual([2, 2]);
  const { image } = services.clickhouse as Service;
  for (const { name, shard, replica } of servers) {
    const service = services[name] as Service;
    expect(service).toMatchObject({ image, hostname: name, profiles: ['cluster'] });
    expect(service.environment).toMatchObject({ CLICKHOUSE_SHARD: shard, CLICKHOUSE_REPLICA: replica });
    expect(service.volumes?.[0]).toBe(`${name}-data:/var/lib/clickhouse`);
    expect(service.depends_on).toEqual({ keeper: { condition: 'service_healthy' } });
  }
  const clusterServices = Object.keys(services).filter((name) => services[name]?.profiles?.includes('cluster'));
  expect(clusterServices.sort()).toEqual([...servers.map(({ name }) => name), 'keeper'].sort());
  expect(env.COMPOSE_PROFILES).toBe('cluster');
});

it('has what Runlake requires of a cluster', () => {
  expect(config.match(/<internal_replication>true</g)).toHaveLength(2);
  expect(config).toContain('<shard from_env="CLICKHOUSE_SHARD"/>');
  expect(config).toContain('<replica from_env="CLICKHOUSE_REPLICA"/>');
  expect(config.match(/<user>runlake<\/user><password from_env="CLICKHOUSE_PASSWORD"\/>/g)).toHaveLength(4);
  const [, host, port] = /<zookeeper><node><host>(\w+)<\/host><port>(\d+)</.exec(config) ?? [];
  expect(services).toHaveProperty(host as string);
  expect(readText('infra/docker/clickhouse/keeper.xml')).toContain(`<tcp_port>${port}</tcp_port>`);
});

it('gives every role the addresses of all servers, with their password', () => {
  for (const role of ['api', 'ingest', 'exports']) {
    const { clickhouseUrl = '', clickhouseCluster } = loadConfig(services[role]?.environment).config;
    const urls = clickhouseUrl.split(',').map((url) => new URL(url));
    expect(urls.map(({ host }) => host)).toEqual(servers.map(({ name }) => `${name}:8123`));
    for (const { username, password, pathname } of urls) {
      expect([username, password, pathname]).toEqual(['runlake', secrets.CLICKHOUSE_PASSWORD, '/runlake']);
    }
    expect(config).toContain(`<${clickhouseCluster}>`);
  }
});

it('stores every table that views or the sink fill on one shard, replicated, under a path of its own', () => {
  const cluster = env.RUNLAKE_CLICKHOUSE_CLUSTER as string;
  const layout: Layout = { kind: 'cluster', cluster, shards: 2, replicas: 2, hasKeeper: true };
  const sql = loadMigrations('clickhouse')
    .flatMap((migration) => splitStatements(migration.sql))
    .flatMap((statement) => buildClusterStatements(statement, layout, 2));
  const local = sql.filter((statement) => /^CREATE TABLE \w+_local/.test(statement));
  const distributed = sql.filter((statement) => statement.includes('ENGINE = Distributed('));
  expect(distributed).toHaveLength(local.length);
  for (const statement of local) {
    const [, name] = /^CREATE TABLE (\w+)_local/.exec(statement) ?? [];
    if (!['run_events', 'run_keys'].includes(name ?? '')) {
      expect(statement).toMatch(
        /ENGINE = Replicated\w*MergeTree\('\/clickhouse\/tables\/\{shard\}\/\{database\}\/\{table\}', '\{replica\}'/,
      );
    }
    const over = `ENGINE = Distributed('runlake', currentDatabase(), '${name}_local', cityHash64(`;
    expect(distributed.filter((each) => each.includes(over))).toHaveLength(1);
  }
  // A view that read or wrote a Distributed table would send derived rows to other shards, or twice.
  for (const view of sql.filter((statement) => statement.startsWith('CREATE MATERIALIZED VIEW'))) {
    expect(view).toMatch(/ TO \w+_local AS[\s\S]*\sFROM (run_events|runs|run_keys)_local\b/);
  }
});
