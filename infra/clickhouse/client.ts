import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import type { ClickHouseSettings } from '@clickhouse/client';
import { isRunlakeError } from '../errors/runlake-error.ts';
import { tenantContext } from '../fairness/tenant-context.ts';
import type { Logger } from '../telemetry/logger.ts';
import { type Connection, openConnection } from './connection.ts';
import { externalTable } from './external-table.ts';
import { type Statement, warehouseFault } from './faults.ts';
import { QuerySlots } from './query-slots.ts';
import { type Answer, readAnswer } from './read-answer.ts';
import { saveAnswer } from './save-answer.ts';
import { searchOf } from './search-of.ts';
import { newerInsertSettings, type Profile, profiles } from './settings.ts';
import type { InsertBody, Query, Warehouse } from './warehouse.ts';

export type { Warehouse } from './warehouse.ts';

export interface WarehouseOptions {
  /** `http(s)://user:password@host:port/database`; without a path the database `default`. */
  readonly url: string;
  /** Certificate authorities to trust, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  readonly logger: Logger;
  /** How long a statement may take where it does not say so itself. */
  readonly timeoutMs: number;
  /**
   * Maximum number of statements at once of Runlake's own work, and of queries of organisations, each; further ones wait. Default 16.
   * How organisations share theirs: `query-slots.ts`.
   */
  readonly maxConnections?: number;
}

/** ClickHouse stops a query itself at its time; this is how much longer the client waits for it to say so. */
const graceMs = 2_000;

/** What one HTTP exchange carries, whatever it is for. */
interface Exchange extends Pick<Query, 'name' | 'sql' | 'params' | 'timeoutMs'> {
  readonly signal?: AbortSignal | undefined;
  readonly profile: Profile;
  readonly statement: Pick<Statement, 'kind' | 'table'>;
  readonly settings?: ClickHouseSettings | undefined;
  /** Sent with its length in Content-Length; the statement then travels in the address. */
  readonly body?: Uint8Array;
  readonly contentType?: string;
}

type TakeAnswer<T> = (answer: Answer, signal: AbortSignal) => Promise<T>;

/** Opens the warehouse. Connects at the first statement; connections are kept alive and used again. */
export function openWarehouse({
  url,
  authorities,
  logger,
  timeoutMs,
  maxConnections = 16,
}: WarehouseOptions): Warehouse {
  const address = new URL(url);
  const slots = new QuerySlots(maxConnections);
  const ownConnection = openConnection({ address, authorities, maxConnections });
  const sharedConnection = openConnection({ address, authorities, maxConnections: slots.max });
  const database = decodeURIComponent(address.pathname.slice(1)) || 'default';

  async function exchange(request: Exchange): Promise<Buffer>;
  async function exchange<T>(request: Exchange, take: TakeAnswer<T>): Promise<T>;
  async function exchange(request: Exchange, take: TakeAnswer<unknown> = readAnswer): Promise<unknown> {
    const context = 'readonly' in profiles[request.profile] ? tenantContext() : undefined;
    if (context === undefined) return send(ownConnection, request, take);
    const signals = [request.signal, context.disconnected].filter((each) => each !== undefined);
    const signal = signals.length > 1 ? AbortSignal.any(signals) : signals[0];
    const allowedMs = request.timeoutMs ?? timeoutMs;
    const beganAtMs = performance.now();
    return slots.run(context, { maxWaitMs: allowedMs, signal }, (priority) => {
      // The time in the queue counts: callers rely on the limit. A query that waited long still gets a part of its time.
      const leftMs = Math.ceil(Math.max(allowedMs - (performance.now() - beganAtMs), allowedMs / 4));
      const settings = { priority, ...request.settings };
      return send(sharedConnection, { ...request, signal, timeoutMs: leftMs, settings }, take);
    });
  }

  async function send(connection: Connection, request: Exchange, take: TakeAnswer<unknown>): Promise<unknown> {
    const queryId = randomUUID();
    const allowedMs = request.timeoutMs ?? timeoutMs;
    const timeout = AbortSignal.timeout(allowedMs + graceMs);
    const signal = request.signal ? AbortSignal.any([request.signal, timeout]) : timeout;
    try {
      request.signal?.throwIfAborted();
      const search = searchOf(
        {
          ...profiles[request.profile],
          database,
          query_id: queryId,
          log_comment: request.name,
          max_execution_time: allowedMs / 1_000,
          ...request.settings,
          ...(request.body !== undefined && { query: request.sql }),
        },
        request.params,
      );
      const { body = request.sql, contentType } = request;
      const answer = await connection.send({ search, body, contentType, signal });
      return await take(answer, signal);
    } catch (raw) {
      if (request.signal?.aborted) throw request.signal.reason;
      // Not the server's.
      if (isRunlakeError(raw)) throw raw;
      logger.debug({ query: request.name, queryId }, 'a statement to ClickHouse failed');
      throw warehouseFault(timeout.aborted ? timeout.reason : raw, {
        ...request.statement,
        name: request.name,
        queryId,
      });
    }
  }

  function asked(query: Query, profile: Profile, suffix: string): Exchange {
    const { external, settings, sql, ...rest } = query;
    const table = external && externalTable(external);
    return {
      ...rest,
      ...table,
      sql: sql + suffix,
      settings: { ...settings, ...table?.settings },
      profile,
      statement: { kind: 'query' },
    };
  }

  const ask = (query: Query, profile: Profile, suffix: string) => exchange(asked(query, profile, suffix));

  let newerSettings: Promise<ClickHouseSettings> | undefined;

  /** Those of {@link newerInsertSettings} that the server knows. */
  async function readNewerSettings(): Promise<ClickHouseSettings> {
    const known = await query<{ name: string }>({
      name: 'newer-settings',
      sql: 'SELECT name FROM system.settings WHERE name IN {names:Array(String)}',
      params: { names: Object.keys(newerInsertSettings) },
    });
    return Object.fromEntries(known.map(({ name }) => [name, newerInsertSettings[name]]));
  }

  async function insertBody({ name, table, columns, format, body, token, settings, ...rest }: InsertBody) {
    try {
      newerSettings ??= readNewerSettings();
      await exchange({
        ...rest,
        name,
        sql: `INSERT INTO ${table} (${columns.join(', ')}) FORMAT ${format}`,
        settings: { ...(await newerSettings), ...settings, insert_deduplication_token: token },
        body,
        contentType: 'application/octet-stream',
        profile: 'insert',
        statement: { kind: 'insert', table },
      });
    } catch (error) {
      // The server may have become another one: the next insert asks again.
      newerSettings = undefined;
      throw error;
    }
  }

  const query = async <Row>(request: Query) => {
    const answer = await ask(request, 'read', '\nFORMAT JSONEachRow');
    return JSON.parse(answer.toString('utf8')) as Row[];
  };

  return {
    query,
    queryText: ({ format, ...request }) => ask(request, 'read', `\nFORMAT ${format}`),
    queryToFile: async ({ format, path, ...request }) => {
      const take: TakeAnswer<{ bytes: number }> = (answer, signal) => saveAnswer(answer, path, signal);
      try {
        return await exchange(asked(request, 'file', `\nFORMAT ${format}`), take);
      } catch (error) {
        await rm(path, { force: true });
        throw error;
      }
    },
    insertBody,
    command: async ({ profile = 'write', ...request }) => void (await ask(request, profile, '')),
    ping: async (allowedMs = timeoutMs) => {
      await query({ name: 'ping', sql: 'SELECT 1', timeoutMs: allowedMs });
    },
    version: async () =>
      (await query<{ version: string }>({ name: 'version', sql: 'SELECT version() AS version' }))[0]!.version,
    close: async () => void (await Promise.all([ownConnection.close(), sharedConnection.close()])),
  };
}
