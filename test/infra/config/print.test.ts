import { describe, expect, it } from 'vitest';
import { loadConfig } from '../../../infra/config/load.ts';
import { printConfig } from '../../../infra/config/print.ts';
import { type Setting, settings } from '../../../infra/config/settings.ts';

function lineOf(variable: string, environment: Record<string, string>): string | undefined {
  return printConfig(loadConfig(environment))
    .split('\n')
    .find((line) => line.startsWith(`${variable}=`));
}

describe('printConfig', () => {
  it('prints every setting once with the source of its value', () => {
    const lines = printConfig(loadConfig({ RUNLAKE_PORT: '0' })).split('\n');
    expect(lines.map((line) => line.split('=')[0])).toEqual(
      Object.values<Setting>(settings).map(({ variable }) => variable),
    );
    expect(lines).toContain('RUNLAKE_PORT=0  (environment)');
    expect(lines).toContain('RUNLAKE_HOST=127.0.0.1  (default)');
    expect(lines).toContain('RUNLAKE_REDIS_URL=  (not set)');
  });

  it('marks every setting with a store address, a key or a credential as secret', () => {
    const secret = Object.values<Setting>(settings).filter((setting) => setting.secret);
    expect(secret.map(({ variable }) => variable)).toEqual([
      'RUNLAKE_PUBLIC_URL',
      'RUNLAKE_OIDC_CLIENT_SECRET',
      'RUNLAKE_CLICKHOUSE_URL',
      'RUNLAKE_DATABASE_URL',
      'RUNLAKE_REDIS_URL',
      'RUNLAKE_SCHEMA_REGISTRY_URL',
      'RUNLAKE_KAFKA_PASSWORD',
      'RUNLAKE_SECRET_KEY',
      'RUNLAKE_FORMER_SECRET_KEYS',
      'RUNLAKE_BOOTSTRAP_API_KEY',
      'RUNLAKE_AGENTS_DATABASE_URL',
      'RUNLAKE_AGENTS_WEBHOOK_SECRET',
      'RUNLAKE_DEPLOYMENTS_SOURCE_STORE',
      'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
      'OTEL_EXPORTER_OTLP_ENDPOINT',
    ]);
  });

  it.each([
    ['RUNLAKE_BOOTSTRAP_API_KEY', 'a-key-of-the-operator', '***'],
    ['RUNLAKE_SECRET_KEY', 'what seals destinations', '***'],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'http://me:seals@otel.example:4318', 'http://***@otel.example:4318/'],
    ['RUNLAKE_CLICKHOUSE_URL', 'https://me:seals@ch.example:8443/traces', 'https://***@ch.example:8443/traces'],
    ['RUNLAKE_DATABASE_URL', 'postgres://me:seals@db.example/x?sslkey=seals', 'postgres://***@db.example/x'],
    ['RUNLAKE_REDIS_URL', 'redis://:seals@cache.example:6379/0', 'redis://***@cache.example:6379/0'],
  ])('keeps the secret of %s', (variable, value, shown) => {
    const printed = printConfig(loadConfig({ [variable]: value }));
    expect(lineOf(variable, { [variable]: value })).toBe(`${variable}=${shown}  (environment)`);
    expect(printed).not.toContain('seals');
    expect(printed).not.toContain('a-key-of-the-operator');
  });

  it('keeps the secret of each URL of a list', () => {
    const environment = {
      RUNLAKE_CLICKHOUSE_URL: 'https://me:seals@a:8443/d, https://me:seals@b:8443/d',
      RUNLAKE_CLICKHOUSE_CLUSTER: 'c',
    };
    expect(lineOf('RUNLAKE_CLICKHOUSE_URL', environment)).toBe(
      'RUNLAKE_CLICKHOUSE_URL=https://***@a:8443/d,https://***@b:8443/d  (environment)',
    );
  });
});
