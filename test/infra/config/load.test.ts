import { describe, expect, it } from 'vitest';
import { internals } from '../../../infra/config/internals.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import { type Setting, settings } from '../../../infra/config/settings.ts';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { nameReplica } from '../../../pipelines/deployments/drivers/image-replica.ts';
import { testSettings } from '../../test-settings.ts';

/** Returns the message of the INVALID_CONFIG error for `environment`. */
function readConfigError(environment: Record<string, string>): string {
  try {
    loadConfig(environment);
  } catch (error) {
    if (isRunlakeError(error) && error.code === 'INVALID_CONFIG') return error.message;
    throw error;
  }
  throw new Error('no fault');
}

describe('loadConfig', () => {
  it('uses the default of every setting that is not set', () => {
    const { config, sources } = loadConfig({});
    expect(config).toMatchObject(internals);
    for (const [name, { fallback }] of Object.entries<Setting>(settings)) {
      expect(config[name as keyof typeof config]).toBe(fallback);
      expect(sources[name as keyof typeof sources]).toBe(fallback === undefined ? 'not set' : 'default');
    }
  });

  it('accepts its own defaults', () => {
    const environment = Object.values<Setting>(settings).flatMap(({ variable, fallback }) =>
      fallback === undefined ? [] : [[variable, String(fallback)]],
    );
    expect(loadConfig(Object.fromEntries(environment)).config).toEqual(loadConfig({}).config);
  });

  it('reports three invalid values in three lines of one message', () => {
    const message = readConfigError({
      RUNLAKE_PORT: '70000',
      RUNLAKE_LOG_LEVEL: 'loud',
      RUNLAKE_AGENTS_DEPLOYMENT: 'nobody',
    });
    const lines = message.split('\n').filter((line) => line.startsWith('  - '));
    expect(message).toContain('3 error(s)');
    expect(lines).toHaveLength(3);
    expect(lines[0]).toMatch(/RUNLAKE_PORT='70000': .*65535/);
    expect(lines[1]).toMatch(/RUNLAKE_LOG_LEVEL='loud': must be one of debug, info, warn, error, silent/);
    expect(lines[2]).toMatch(/RUNLAKE_AGENTS_DEPLOYMENT='nobody': must be a valid uuid/);
  });

  it('does not print an invalid secret', () => {
    const message = readConfigError({
      RUNLAKE_BOOTSTRAP_API_KEY: 'short secret',
      RUNLAKE_CLICKHOUSE_URL: 'not a url: secret',
    });
    expect(message).toContain('RUNLAKE_BOOTSTRAP_API_KEY:');
    expect(message).toContain('RUNLAKE_CLICKHOUSE_URL:');
    expect(message).not.toContain('secret');
  });

  it.each(['u:secret@b:9092', 'b:9092,u:secret@c:9092', 'b:9092,,foo', 'kafka://b:9092', 'b'])(
    'refuses the broker list %s without printing a password',
    (brokers) => {
      const message = readConfigError({ RUNLAKE_KAFKA_BROKERS: brokers, RUNLAKE_SCHEMA_REGISTRY_URL: 'http://r:8081' });
      expect(message).toContain('RUNLAKE_KAFKA_BROKERS=');
      expect(message).not.toContain('secret');
    },
  );

  it.each([
    ['RUNLAKE_PORT', '1984', 'port', 1984],
    ['RUNLAKE_PORT', ' 8080 ', 'port', 8080],
    ['RUNLAKE_ALLOW_PRIVATE_ENDPOINTS', 'yes', 'allowPrivateEndpoints', true],
    ['RUNLAKE_ALLOW_PRIVATE_ENDPOINTS', 'OFF', 'allowPrivateEndpoints', false],
    ['RUNLAKE_DATABASE_URL', 'postgres://u:p@db:5432/x', 'databaseUrl', 'postgres://u:p@db:5432/x'],
  ] as const)('reads %s=%s', (variable, text, name, value) => {
    const { config, sources } = loadConfig({ [variable]: text });
    expect(config[name]).toBe(value);
    expect(sources[name]).toBe('environment');
  });

  it.each([
    ['a fraction', 'RUNLAKE_PORT', '80.5'],
    ['a number with a unit', 'RUNLAKE_MAX_BODY_BYTES', '100MB'],
    ['a number beyond what is exact', 'RUNLAKE_MAX_BODY_BYTES', '99999999999999999999'],
    ['a word for a truth value', 'RUNLAKE_ALLOW_PRIVATE_ENDPOINTS', 'maybe'],
    ['a number below its bound', 'RUNLAKE_EXPORT_CONCURRENCY', '0'],
    ['a key with spaces', 'RUNLAKE_BOOTSTRAP_API_KEY', 'a key with spaces in it'],
    ['a timeout for which Node has no timer', 'RUNLAKE_AGENTS_RUN_TIMEOUT_MS', '2592000000'],
    ['a short secret key', 'RUNLAKE_SECRET_KEY', 'guess me'],
    ['a secret key that a list of former ones cannot hold', 'RUNLAKE_SECRET_KEY', 'one that is long, and a list'],
  ])('refuses %s', (_what, variable, text) => {
    expect(readConfigError({ [variable]: text })).toContain(variable);
  });

  it.each([
    [{ RUNLAKE_KAFKA_BROKERS: 'kafka:9092' }, /RUNLAKE_KAFKA_BROKERS requires RUNLAKE_SCHEMA_REGISTRY_URL/],
    [
      { RUNLAKE_KAFKA_SASL_MECHANISM: 'plain' },
      /RUNLAKE_KAFKA_SASL_MECHANISM and RUNLAKE_KAFKA_USER must be set together/,
    ],
    [{ RUNLAKE_KAFKA_PASSWORD: 'x' }, /RUNLAKE_KAFKA_USER and RUNLAKE_KAFKA_PASSWORD must be set together/],
    [{ RUNLAKE_MAX_RUN_BYTES: '2000000', RUNLAKE_MAX_BODY_BYTES: '1000000' }, /RUNLAKE_MAX_BODY_BYTES/],
    [
      { RUNLAKE_MAX_RUN_BYTES: '70000000', RUNLAKE_MEMORY_BYTES: '268435456' },
      /RUNLAKE_MAX_RUN_BYTES must not be larger than a quarter of RUNLAKE_MEMORY_BYTES/,
    ],
    [
      { RUNLAKE_MAX_BODY_BYTES: '140000000', RUNLAKE_MEMORY_BYTES: '268435456' },
      /RUNLAKE_MAX_BODY_BYTES must not be larger than half of RUNLAKE_MEMORY_BYTES/,
    ],
    [{ RUNLAKE_CLICKHOUSE_CLUSTER: 'c' }, /RUNLAKE_CLICKHOUSE_CLUSTER requires RUNLAKE_CLICKHOUSE_URL/],
    [{ RUNLAKE_TRUSTED_PROXIES: '10.0.0.0/33' }, /RUNLAKE_TRUSTED_PROXIES: '10.0.0.0.33' is not an IP address/],
    [{ RUNLAKE_TRUSTED_PROXIES: '10.0.0.1, proxy' }, /RUNLAKE_TRUSTED_PROXIES: 'proxy' is not an IP address/],
    [{ RUNLAKE_TRUSTED_PROXIES: '::1/64,' }, /RUNLAKE_TRUSTED_PROXIES: '' is not an IP address/],
    [{ RUNLAKE_CLICKHOUSE_URL: 'http://a/d,http://b/d' }, /lists several servers, which requires/],
    [
      { RUNLAKE_CLICKHOUSE_URL: 'http://a/d, http://b/e', RUNLAKE_CLICKHOUSE_CLUSTER: 'c' },
      /the database must be the same on all servers/,
    ],
  ])('refuses settings that contradict each other: %j', (environment, expected) => {
    expect(readConfigError(environment)).toMatch(expected);
  });

  it.each([
    ['RUNLAKE_CLICKHOUSE_URL', 'postgres://me:hidden@db/x', 'http:// or https://'],
    ['RUNLAKE_SCHEMA_REGISTRY_URL', 'kafka://registry', 'http:// or https://'],
    ['RUNLAKE_PUBLIC_URL', 'ftp://runlake.example', 'http:// or https://'],
    ['RUNLAKE_DATABASE_URL', 'https://me:hidden@db/x', 'postgres:// or postgresql://'],
    ['RUNLAKE_REDIS_URL', 'http://:hidden@cache', 'redis:// or rediss://'],
  ])('refuses %s=%s for its scheme', (variable, text, expected) => {
    const message = readConfigError({ [variable]: text });
    expect(message).toContain(`must start with ${expected}`);
    expect(message).toContain(`  - ${variable}`);
    expect(message).not.toContain('hidden');
  });

  it.each([
    ['RUNLAKE_CLICKHOUSE_URL', 'http://me:hidden%@ch/x'],
    ['RUNLAKE_CLICKHOUSE_URL', 'http://me:hidden#@ch/x'],
    ['RUNLAKE_CLICKHOUSE_URL', 'http://ch/%zz'],
    ['RUNLAKE_DATABASE_URL', 'postgres://me:hidden@/x?host=/var/run/postgresql'],
    ['RUNLAKE_PUBLIC_URL', 'https://runlake.example:99999'],
    ['RUNLAKE_TOOLS_ENDPOINTS', 'https://a.example, http://:80'],
  ])('refuses %s=%s, which clients cannot parse', (variable, text) => {
    const message = readConfigError({ [variable]: text });
    expect(message.match(/must have one host and a valid port/g)).toHaveLength(1);
    expect(message).toContain(`  - ${variable}`);
    expect(message).not.toContain('hidden');
  });

  it.each([
    ['RUNLAKE_CLICKHOUSE_URL', 'http://me:50%25@ch/x', 'clickhouseUrl'],
    ['RUNLAKE_DATABASE_URL', 'postgres:///x', 'databaseUrl'],
    ['RUNLAKE_CLICKHOUSE_URL', 'http://ch', 'clickhouseUrl'],
    ['RUNLAKE_DATABASE_URL', 'postgresql://db/x', 'databaseUrl'],
    ['RUNLAKE_REDIS_URL', 'rediss://cache', 'redisUrl'],
  ] as const)('takes %s=%s', (variable, text, name) => {
    expect(loadConfig({ [variable]: text }).config[name]).toBe(text);
  });

  it('divides the memory budget into the buffers of a process', () => {
    const mib = 1024 ** 2;
    const buffers = (memoryBytes?: number) => {
      const { config } = loadConfig(memoryBytes === undefined ? {} : { RUNLAKE_MEMORY_BYTES: String(memoryBytes) });
      return [
        config.maxCollectingBytes,
        config.maxPendingBytes,
        config.maxFetchedBytes,
        config.exportEncoderBytes,
        config.agentsWorkerBufferBytes,
      ].map((bytes) => bytes / mib);
    };
    expect(buffers()).toEqual([512, 256, 64, 256, 256]);
    expect(buffers(2048 * mib)).toEqual([1024, 512, 128, 512, 512]);
    expect(readConfigError({ RUNLAKE_MEMORY_BYTES: String(255 * mib) })).toContain('RUNLAKE_MEMORY_BYTES');
  });

  it('replaces constants by RUNLAKE_TEST_SETTINGS, in tests only', () => {
    const environment = testSettings({ drainTimeoutMs: 100, maxFetchedBytes: 8_192 });
    expect(loadConfig(environment).config).toMatchObject({ drainTimeoutMs: 100, maxFetchedBytes: 8_192 });
    expect(readConfigError({ ...environment, NODE_ENV: 'production' })).toContain('NODE_ENV is not test');
    expect(readConfigError({ RUNLAKE_TEST_SETTINGS: '{}' })).toContain('NODE_ENV is not test');
  });

  it.each([
    ['no JSON', '{', 'is not a JSON object'],
    ['a list', 'null', 'is not a JSON object'],
    ['a setting', '{"port":1}', 'port is not a constant; did you mean'],
    ['a misspelt constant', '{"drainTimeoutMS":1}', 'did you mean drainTimeoutMs?'],
    ['text for a number', '{"drainTimeoutMs":"1"}', 'drainTimeoutMs must be a number'],
  ])('refuses %s in RUNLAKE_TEST_SETTINGS', (_what, text, expected) => {
    expect(readConfigError({ NODE_ENV: 'test', RUNLAKE_TEST_SETTINGS: text })).toContain(expected);
  });

  it('takes no constant from a variable of its own', () => {
    expect(readConfigError({ RUNLAKE_DRAIN_TIMEOUT_MS: '1' })).toContain('RUNLAKE_DRAIN_TIMEOUT_MS is not a setting');
  });

  it('counts an empty variable as not set', () => {
    const { config, sources } = loadConfig({ RUNLAKE_PORT: '', RUNLAKE_REDIS_URL: '  ' });
    expect(config.port).toBe(settings.port.fallback);
    expect(sources.redisUrl).toBe('not set');
  });

  it('refuses unknown RUNLAKE_ variables and suggests the nearest setting', () => {
    const environment = { RUNLAKE_PROT: '1', RUNLAKE_KAFKA_BROKER: 'localhost:9092', RUNLAKE_PORT: '2', PATH: '/bin' };
    expect(() => loadConfig(environment)).toThrow(
      [
        '  - RUNLAKE_PROT is not a setting; did you mean RUNLAKE_PORT?',
        '  - RUNLAKE_KAFKA_BROKER is not a setting; did you mean RUNLAKE_KAFKA_BROKERS?',
      ].join('\n'),
    );
  });

  it.each(['RUNLAKE_SERVICE_HOST', 'RUNLAKE_SERVICE_PORT_HTTP', 'RUNLAKE_PORT_1984_TCP_ADDR', 'RUNLAKE_STACK_DIR'])(
    'ignores %s, which Kubernetes or the tests set',
    (variable) => {
      loadConfig({ [variable]: '10.0.0.1' });
    },
  );

  it.each([
    ['runlake', 1984, 'TCP'],
    ['runlake-tools', 1986, 'TCP'],
    ['runlake-metrics', 9464, 'UDP'],
    [nameReplica({ revisionId: '0198a3c2-0000-7000-8000-000000000000', number: 0 }), 8000, 'SCTP'],
  ])('ignores all variables that Kubernetes sets for the service %s', (service, port, protocol) => {
    const name = service.toUpperCase().replaceAll('-', '_');
    const link = `${protocol.toLowerCase()}://10.0.0.1:${port}`;
    const environment = {
      [`${name}_SERVICE_HOST`]: '10.0.0.1',
      [`${name}_SERVICE_PORT`]: String(port),
      [`${name}_SERVICE_PORT_HTTP`]: String(port),
      [`${name}_PORT`]: link,
      [`${name}_PORT_${port}_${protocol}`]: link,
      [`${name}_PORT_${port}_${protocol}_PROTO`]: protocol.toLowerCase(),
      [`${name}_PORT_${port}_${protocol}_PORT`]: String(port),
      [`${name}_PORT_${port}_${protocol}_ADDR`]: '10.0.0.1',
    };
    expect(loadConfig(environment)).toEqual(loadConfig({}));
  });

  it('ignores an unknown variable without a value', () => {
    loadConfig({ RUNLAKE_PROT: '' });
  });

  it('returns a frozen object', () => {
    const loaded = loadConfig({});
    expect(Object.isFrozen(loaded) && Object.isFrozen(loaded.config) && Object.isFrozen(loaded.sources)).toBe(true);
    expect(() => Object.assign(loaded.config, { port: 1 })).toThrow(TypeError);
  });
});
