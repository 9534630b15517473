import { join, resolve } from 'node:path';
import type { Config } from '../../infra/config/settings.ts';
import {
  collectErrorText,
  type Explanation,
  explainConnection,
  type ServerAddress,
} from '../../infra/errors/explain-connection.ts';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';

/** Servers with a configurable address that `runlake doctor` checks. */
export type ServerName = 'ClickHouse' | 'Postgres' | 'Redis' | 'Kafka' | 'Schema registry';

export interface CheckedServer {
  readonly name: ServerName;
  /** The configured URL or, for Kafka, the list of brokers. The password is never printed. */
  readonly address: string;
}

const tlsHints: Readonly<Record<ServerName, Omit<ServerAddress, 'location'>>> = {
  ClickHouse: { variable: 'RUNLAKE_CLICKHOUSE_URL', withTls: 'https:// there', withoutTls: 'http:// there' },
  Postgres: { variable: 'RUNLAKE_DATABASE_URL', withTls: 'sslmode=verify-full there', withoutTls: 'no sslmode there' },
  Redis: { variable: 'RUNLAKE_REDIS_URL', withTls: 'rediss:// there', withoutTls: 'redis:// there' },
  Kafka: {
    variable: 'RUNLAKE_KAFKA_BROKERS',
    withTls: 'RUNLAKE_KAFKA_TLS=true',
    withoutTls: 'RUNLAKE_KAFKA_TLS=false',
    authenticationHint:
      'It may require SASL: set RUNLAKE_KAFKA_SASL_MECHANISM, RUNLAKE_KAFKA_USER and RUNLAKE_KAFKA_PASSWORD.',
  },
  'Schema registry': {
    variable: 'RUNLAKE_SCHEMA_REGISTRY_URL',
    withTls: 'https:// there',
    withoutTls: 'http:// there',
  },
};

/**
 * Explanations and remedies for servers that are reachable but refuse access. The patterns are matched against error
 * codes and error texts.
 */
const rejections: readonly (readonly [server: ServerName, pattern: RegExp, words: string, remedy: string])[] = [
  [
    'Postgres',
    /\b28P01\b|password authentication failed/,
    'refuses the user or the password',
    'Correct both in RUNLAKE_DATABASE_URL.',
  ],
  [
    'Postgres',
    /\b3D000\b/,
    'does not have a database of that name',
    'Create it with CREATE DATABASE, or correct the name at the end of RUNLAKE_DATABASE_URL.',
  ],
  [
    'Postgres',
    /\b42501\b/,
    'does not grant the user the required privileges',
    'GRANT the user CREATE on the database and its schema.',
  ],
  [
    'Postgres',
    /no encryption/,
    'accepts only encrypted connections',
    'Add ?sslmode=verify-full to RUNLAKE_DATABASE_URL.',
  ],
  [
    'Postgres',
    /\b28000\b/,
    'has no pg_hba.conf rule for this user and host',
    'Correct the user in RUNLAKE_DATABASE_URL, or add a rule to pg_hba.conf on the server.',
  ],
  [
    'ClickHouse',
    /\b(516|194|193|192)\b|AUTHENTICATION_FAILED/,
    'refuses the user or the password',
    'Correct both in RUNLAKE_CLICKHOUSE_URL.',
  ],
  [
    'ClickHouse',
    /\bUNKNOWN_DATABASE\b|^81$/m,
    'does not have a database of that name',
    'Create it with CREATE DATABASE, or correct the name at the end of RUNLAKE_CLICKHOUSE_URL.',
  ],
  [
    'ClickHouse',
    /\bACCESS_DENIED\b|^497$/m,
    'does not grant the user the required privileges',
    'GRANT the user SELECT, INSERT, ALTER, CREATE TABLE, CREATE VIEW, DROP TABLE on the database.',
  ],
  [
    'Redis',
    /\b(WRONGPASS|NOAUTH)\b|invalid password|without any password/,
    'refuses the user or the password',
    'Correct both in RUNLAKE_REDIS_URL.',
  ],
  [
    'Redis',
    /\bNOPERM\b/,
    'does not grant the user the required privileges',
    'Allow the user INFO, and all commands on keys that begin with runlake:.',
  ],
  [
    'Kafka',
    /SASLAuthentication|SASL_AUTHENTICATION_FAILED|ILLEGAL_SASL_STATE|UNSUPPORTED_SASL_MECHANISM|SASL \S+ authentication failed/i,
    'refuses the user, the password or the mechanism',
    'Correct RUNLAKE_KAFKA_USER, RUNLAKE_KAFKA_PASSWORD and RUNLAKE_KAFKA_SASL_MECHANISM.',
  ],
  [
    'Kafka',
    /AUTHORIZATION_FAILED/,
    'does not grant the user the required privileges',
    'Allow the user to describe, read, write and create topics and groups that begin with RUNLAKE_KAFKA_TOPIC_PREFIX.',
  ],
  [
    'Schema registry',
    /answered 40[13]\b/,
    'refuses the user or the password',
    'Correct both in RUNLAKE_SCHEMA_REGISTRY_URL.',
  ],
  [
    'Schema registry',
    /answered 404\b/,
    'does not serve this path',
    'Correct the path in RUNLAKE_SCHEMA_REGISTRY_URL. With Apicurio it ends with /apis/ccompat/v7.',
  ],
];

/**
 * Explains why a server is not usable, and includes a remedy. Returns undefined if the error message already contains
 * the explanation.
 */
export function explainPart(error: unknown, { name, address }: CheckedServer): Explanation | undefined {
  // Errors of an inspection already contain an explanation.
  const found = ['PART_UNUSABLE', 'STORE_TOO_OLD', 'TOPIC_UNUSABLE', 'SCHEMA_REFUSED', 'TLS_FILE_UNUSABLE'];
  if (isRunlakeError(error) && found.includes(error.code)) return undefined;
  const location = getHostOrAddress(address);
  const errorText = collectErrorText(error);
  const rejection = rejections.find(([server, pattern]) => server === name && pattern.test(errorText));
  if (rejection !== undefined) return { words: `${name} at ${location} ${rejection[2]}`, remedy: rejection[3] };
  return explainConnection(error, { location, ...tlsHints[name] });
}

function getHostOrAddress(address: string): string {
  return URL.canParse(address) && address.includes('://') ? new URL(address).host : address;
}

/** Returns the paths of the embedded engines' log files in the data folder. */
export function listEngineLogs(config: Pick<Config, 'dataDir'>): {
  readonly ClickHouse: string;
  readonly Postgres: string;
} {
  const folder = resolve(config.dataDir);
  return { ClickHouse: join(folder, 'clickhouse', 'error.log'), Postgres: join(folder, 'postgres.log') };
}

/**
 * Returns the remedy for a part that is down while Runlake is running. `part` is the name of the part in `/ready`. The
 * remedy contains host names but never complete URLs.
 */
export function findPartRemedy(part: string, config: Config, pid: number | undefined): string {
  switch (part) {
    case 'clickhouse':
      return buildStoreRemedy('ClickHouse', config.clickhouseUrl, config);
    case 'postgres':
      return buildStoreRemedy('Postgres', config.databaseUrl, config);
    case 'jobs':
      if (config.redisUrl !== undefined)
        return `Check that Redis runs at ${formatHost(config.redisUrl)} and accepts Runlake's credentials.`;
      return 'The job queue is in Postgres and recovers with it.';
    case 'redis':
      return `Check that Redis runs at ${formatHost(config.redisUrl ?? '')} and accepts Runlake's credentials.`;
    case 'kafka':
      return `Check that Kafka runs at ${config.kafkaBrokers} and accepts Runlake's credentials.`;
    case 'schema registry':
    case 'schema_registry':
      return `Check that the schema registry runs at ${formatHost(config.schemaRegistryUrl ?? '')} and accepts Runlake's credentials.`;
    default:
      return `It recovers with ClickHouse and Postgres. If both are up, see the log of process ${pid ?? 'runlake'}.`;
  }
}

function buildStoreRemedy(store: 'ClickHouse' | 'Postgres', address: string | undefined, config: Config): string {
  if (address !== undefined) {
    return `Check that the ${store} server at ${formatHost(address)} runs, is reachable and accepts Runlake's credentials.`;
  }
  return (
    `It is embedded: runlake restarts it when it exits. If it does not come up, restart runlake. ` +
    `Its log is ${listEngineLogs(config)[store]}.`
  );
}

function formatHost(address: string): string {
  return URL.canParse(address) ? new URL(address).host : 'the configured address';
}
