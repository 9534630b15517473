/**
 * Runs one migration on one ClickHouse server, which has no transactions.
 *
 * Invariant: each statement takes effect once, at whatever point a process crashes. The caller holds the migration
 * lock, so no other process writes records. For each statement, from the first that is not recorded as done:
 *   1. Record `started` with the checksum of the statement.
 *   2. Run the statement. After a crash before this step, the next start runs it.
 *   3. Record `done`. After a crash before this step, the next start repeats the statement, and it may find its own
 *      result. Only in that case is the error "already exists" treated as success, because only this migration can
 *      have created the object.
 *   4. After the last statement, record the whole file as statement 0. Completed statements must not change. All other
 *      statements may change, so that a release can correct a failing migration.
 */
import { getClickHouseCode } from '../clickhouse/clickhouse-error.ts';
import type { ClickHouse } from '../clickhouse/client.ts';
import type { Layout } from '../clickhouse/settings.ts';
import { runlakeError } from '../errors/runlake-error.ts';
import { buildClusterStatements } from './cluster-statements.ts';
import { computeChecksum, type Migration, toMigrationError } from './load.ts';
import type { AppliedMigration } from './pending.ts';

type State = 'started' | 'done';

interface Step {
  /** Number of the statement, from 1; 0 means the whole file. */
  readonly statement: number;
  readonly state: State;
  readonly checksum: string;
}

/** ClickHouse's error numbers for objects that already exist: 15 column, 57 table or view, 82 database. */
const alreadyExistsCodes = new Set([15, 57, 82]);

/** A completed migration of one server. */
export interface AppliedClickHouse extends AppliedMigration {
  /** Number of shards when the tables were first created; 0 without a cluster. */
  readonly shards: number;
}

export function readAppliedClickHouse(server: ClickHouse): Promise<AppliedClickHouse[]> {
  const sql = 'SELECT version, name, checksum, shards FROM runlake_migrations WHERE statement = 0';
  return readRecords<AppliedClickHouse>(server, sql);
}

/** Layout, number of shards and timeout with which a migration is applied to a server. */
export interface MigrationOptions {
  readonly layout: Layout;
  /** Number of shards, see {@link AppliedClickHouse}. */
  readonly shards: number;
  readonly timeoutMs: number;
}

/** @throws MIGRATION_FAILED, MIGRATION_CHANGED; CLICKHOUSE_UNAVAILABLE if a retry may succeed. */
export async function applyClickHouse(
  clickhouse: ClickHouse,
  migration: Migration,
  { layout, shards, timeoutMs }: MigrationOptions,
): Promise<void> {
  const { version, name, checksum } = migration;
  const record = (step: Step) => writeRecord(clickhouse, { version, name, shards, ...step });
  try {
    await clickhouse.command({ name: 'migrate', sql: buildRecordTableSql(layout) });
    const pastSteps = await readSteps(clickhouse, version);
    const statements = splitStatements(migration.sql).flatMap((sql) => buildClusterStatements(sql, layout, shards));
    for (const [index, sql] of statements.entries()) {
      const step = { statement: index + 1, checksum: computeChecksum(sql) };
      const before = pastSteps.filter(({ statement }) => statement === step.statement);
      const done = before.find(({ state }) => state === 'done');
      if (done !== undefined && done.checksum !== step.checksum) {
        throw runlakeError('MIGRATION_CHANGED', { store: 'clickhouse', name });
      }
      if (done !== undefined) continue;
      await record({ ...step, state: 'started' });
      await runOnce(clickhouse, sql, timeoutMs, before.length > 0);
      await record({ ...step, state: 'done' });
    }
    await record({ statement: 0, state: 'done', checksum });
  } catch (error) {
    throw toMigrationError('clickhouse', name, error);
  }
}

async function runOnce(
  clickhouse: ClickHouse,
  sql: string,
  timeoutMs: number,
  wasStartedBefore: boolean,
): Promise<void> {
  try {
    await clickhouse.command({ name: 'migrate', sql, timeoutMs });
  } catch (error) {
    if (!wasStartedBefore || !alreadyExistsCodes.has(getClickHouseCode(error) ?? 0)) throw error;
  }
}

function readSteps(clickhouse: ClickHouse, version: number): Promise<Step[]> {
  return readRecords<Step>(
    clickhouse,
    'SELECT statement, state, checksum FROM runlake_migrations WHERE version = {version:UInt32}',
    { version },
  );
}

async function readRecords<Row>(
  clickhouse: ClickHouse,
  sql: string,
  params: Record<string, number> = {},
): Promise<Row[]> {
  // A query of a missing table would be an error in the log of ClickHouse at each first start.
  const [table] = await clickhouse.query<{ result: number }>({
    name: 'find-migrations',
    sql: 'EXISTS TABLE runlake_migrations',
  });
  return table?.result === 1 ? clickhouse.query<Row>({ name: 'read-migrations', sql, params }) : [];
}

interface StepRecord extends Step {
  readonly version: number;
  readonly name: string;
  readonly shards: number;
}

async function writeRecord(clickhouse: ClickHouse, record: StepRecord): Promise<void> {
  await clickhouse.command({
    name: 'record-migration',
    sql: `INSERT INTO runlake_migrations (version, name, statement, state, checksum, shards)
      SELECT {version:UInt32}, {name:String}, {statement:UInt32}, {state:String}, {checksum:String}, {shards:UInt32}`,
    params: { ...record },
  });
}

/**
 * Builds the statement that creates the table of migration records. In a cluster, each server has its own records; in a
 * replicated database, all servers share the records.
 */
const buildRecordTableSql = ({ kind }: Layout) => `CREATE TABLE IF NOT EXISTS runlake_migrations (
  version UInt32,
  name String,
  statement UInt32,
  state LowCardinality(String),
  checksum String,
  shards UInt32,
  recorded_at DateTime64(6, 'UTC') DEFAULT now64(6)
) ENGINE = ${kind === 'replicated' ? 'ReplicatedMergeTree' : 'MergeTree'} ORDER BY (version, statement)`;

/**
 * Matches one token of SQL: a comment, a string or quoted name, the end of a statement, or any other single character.
 */
const tokenPattern =
  /--[^\n]*|#[ !][^\n]*|\/\*[\s\S]*?(?:\*\/|$)|'(?:[^'\\]|\\[\s\S]|'')*'|"(?:[^"\\]|\\[\s\S]|"")*"|`(?:[^`\\]|\\[\s\S]|``)*`|;|[\s\S]/g;

/**
 * Splits ClickHouse SQL into statements at semicolons, except those in strings, names and comments. Removes comments, because
 * ClickHouse runs one statement at a time, and a comment alone is not a statement.
 * Source: lexer of ClickHouse (strings may have backslash escapes; `#` followed by a space or `!` starts a comment).
 */
export function splitStatements(sql: string): string[] {
  const statements: string[] = [];
  let current = '';
  for (const [token] of sql.matchAll(tokenPattern)) {
    if (token === ';') {
      statements.push(current);
      current = '';
    } else {
      current += isComment(token) ? ' ' : token;
    }
  }
  statements.push(current);
  return statements.map((statement) => statement.trim()).filter((statement) => statement !== '');
}

function isComment(token: string): boolean {
  return token.length > 1 && (token.startsWith('--') || token.startsWith('#') || token.startsWith('/*'));
}
