import {
  type Explanation,
  explainConnection,
  type ServerAddress,
  signsOf,
} from '../../infra/errors/explain-connection.ts';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';

/** Servers at addresses that the doctor knows. */
export type ServerName = 'ClickHouse' | 'Postgres' | 'Redis' | 'Kafka' | 'Schema registry';

export interface AskedServer {
  readonly name: ServerName;
  /** As configured: a URL, or for Kafka its list of brokers. Passwords in it are never shown. */
  readonly address: string;
}

const tls: Readonly<Record<ServerName, Omit<ServerAddress, 'place'>>> = {
  ClickHouse: { variable: 'RUNLAKE_CLICKHOUSE_URL', withTls: 'https:// there', withoutTls: 'http:// there' },
  Postgres: { variable: 'RUNLAKE_DATABASE_URL', withTls: 'sslmode=verify-full there', withoutTls: 'no sslmode there' },
  Redis: { variable: 'RUNLAKE_REDIS_URL', withTls: 'rediss:// there', withoutTls: 'redis:// there' },
  Kafka: {
    variable: 'RUNLAKE_KAFKA_BROKERS',
    withTls: 'RUNLAKE_KAFKA_TLS=true',
    withoutTls: 'RUNLAKE_KAFKA_TLS=false',
    signIn: 'It may ask who you are: set RUNLAKE_KAFKA_SASL_MECHANISM, RUNLAKE_KAFKA_USER and RUNLAKE_KAFKA_PASSWORD.',
  },
  'Schema registry': {
    variable: 'RUNLAKE_SCHEMA_REGISTRY_URL',
    withTls: 'https:// there',
    withoutTls: 'http:// there',
  },
};

/** What servers say when they were reached and do not let us in, matched against codes and texts. */
const refusals: readonly (readonly [server: ServerName, pattern: RegExp, words: string, remedy: string])[] = [
  [
    'Postgres',
    /\b28P01\b|password authentication failed/,
    'refuses the user or the password',
    'Correct both in RUNLAKE_DATABASE_URL.',
  ],
  [
    'Postgres',
    /\b3D000\b/,
    'has no database of that name',
    'Make it with CREATE DATABASE, or correct the name at the end of RUNLAKE_DATABASE_URL.',
  ],
  [
    'Postgres',
    /\b42501\b/,
    'does not give the user the rights',
    'GRANT the user CREATE on the database and its schema.',
  ],
  [
    'Postgres',
    /no encryption/,
    'takes encrypted connections only',
    'Add ?sslmode=verify-full to RUNLAKE_DATABASE_URL.',
  ],
  [
    'Postgres',
    /\b28000\b/,
    'has no rule that lets this user in from here',
    'Correct the user in RUNLAKE_DATABASE_URL, or add a line to pg_hba.conf of the server.',
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
    'has no database of that name',
    'Make it with CREATE DATABASE, or correct the name at the end of RUNLAKE_CLICKHOUSE_URL.',
  ],
  [
    'ClickHouse',
    /\bACCESS_DENIED\b|^497$/m,
    'does not give the user the rights',
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
    'does not give the user the rights',
    'Let the user run all commands on keys that begin with runlake: and on INFO.',
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
    'does not give the user the rights',
    'Let the user describe, read, write and create topics and groups that begin with RUNLAKE_KAFKA_TOPIC_PREFIX.',
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
    'is not what answers there',
    'Correct the path in RUNLAKE_SCHEMA_REGISTRY_URL; that of Apicurio ends with /apis/ccompat/v7.',
  ],
];

/** The first thing that is wrong with a server, and what to do about it; undefined where the error speaks for itself. */
export function explainPart(error: unknown, { name, address }: AskedServer): Explanation | undefined {
  // What an inspection found out is said by itself.
  const found = ['PART_UNFIT', 'STORE_TOO_OLD', 'TOPIC_UNFIT', 'SCHEMA_REFUSED', 'TLS_FILE_UNUSABLE'];
  if (isRunlakeError(error) && found.includes(error.code)) return undefined;
  const place = placeOf(address);
  const signs = signsOf(error);
  const refusal = refusals.find(([server, pattern]) => server === name && pattern.test(signs));
  if (refusal !== undefined) return { words: `${name} at ${place} ${refusal[2]}`, remedy: refusal[3] };
  return explainConnection(error, { place, ...tls[name] });
}

function placeOf(address: string): string {
  return URL.canParse(address) && address.includes('://') ? new URL(address).host : address;
}
