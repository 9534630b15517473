import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import type { ClickHouseSettings } from '@clickhouse/client';
import { isRunlakeError } from '../errors/runlake-error.ts';
import { runForRunlake, tenantContext } from '../fairness/tenant-context.ts';
import type { Logger } from '../telemetry/logger.ts';
import { type HttpResponse, readResponse, saveResponse } from './answer.ts';
import type { ClickHouse, InsertBody, Query } from './clickhouse.ts';
import { clickhouseError, type Statement } from './clickhouse-error.ts';
import { type Connection, encodeExternalTable, openConnection, type RequestBody } from './connection.ts';
import { QuerySlots } from './query-slots.ts';
import { type Profile, profiles } from './settings.ts';

export type { ClickHouse } from './clickhouse.ts';

export interface ClickHouseOptions {
  /** `http(s)://user:password@host:port/database`; without a path the database `default`. */
  readonly url: string;
  /** Certificate authorities to trust, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  readonly logger: Logger;
  /** Timeout of statements that do not set their own. */
  readonly timeoutMs: number;
  /** Maximum number of concurrent statements of Runlake's own work; further ones wait. Default 16. */
  readonly maxConnections?: number;
  /**
   * Maximum number of concurrent queries of organisations (`query-slots.ts`). Default: derived from ClickHouse's
   * `max_threads`.
   */
  readonly querySlots?: number;
}

/** ClickHouse stops a query at its timeout; the client waits this much longer for the error of the server. */
const graceMs = 2_000;

/**
 * Running queries share the CPU with a new one, and even paused queries use some of it. Under a flood of other queries,
 * a query took seven times as long with eight slots per thread, and twice as long with two (docs/decisions/0103).
 */
const slotsPerThread = 2;
const minSlots = 4;

/** One HTTP request to ClickHouse, of any kind. */
interface Exchange extends Pick<Query, 'name' | 'sql' | 'params' | 'timeoutMs'> {
  readonly signal?: AbortSignal | undefined;
  readonly profile: Profile;
  readonly statement: Pick<Statement, 'kind' | 'table'>;
  readonly settings?: ClickHouseSettings | undefined;
  readonly body?: RequestBody | undefined;
  /** Must be unique among the queries of the server. Default: random. */
  readonly queryId?: string;
}

type ConsumeResponse<T> = (answer: HttpResponse, signal: AbortSignal) => Promise<T>;

/** Opens a ClickHouse client. It connects at the first statement, and keeps connections alive and reuses them. */
export function openClickHouse({
  url,
  authorities,
  logger,
  timeoutMs,
  maxConnections = 16,
  querySlots,
}: ClickHouseOptions): ClickHouse {
  const address = new URL(url);
  const ownConnection = openConnection({ address, authorities, maxConnections });
  const sharedConnection = openConnection({ address, authorities });

  async function exchange(request: Exchange): Promise<Buffer>;
  async function exchange<T>(request: Exchange, take: ConsumeResponse<T>): Promise<T>;
  async function exchange(request: Exchange, take: ConsumeResponse<unknown> = readResponse): Promise<unknown> {
    const context = 'readonly' in profiles[request.profile] ? tenantContext() : undefined;
    if (context === undefined) return send(ownConnection, request, take);
    const signals = [request.signal, context.disconnected].filter((each) => each !== undefined);
    const signal = signals.length > 1 ? AbortSignal.any(signals) : signals[0];
    const allowedMs = request.timeoutMs ?? timeoutMs;
    const beganAtMs = performance.now();
    return (await slots()).run(context, { maxWaitMs: allowedMs, signal }, (priority) => {
      // The wait in the queue counts, because callers rely on the timeout. Even after a long wait a query gets a
      // quarter of it.
      const leftMs = Math.ceil(Math.max(allowedMs - (performance.now() - beganAtMs), allowedMs / 4));
      const settings = { priority, ...request.settings };
      return send(sharedConnection, { ...request, signal, timeoutMs: leftMs, settings }, take);
    });
  }

  async function send(connection: Connection, request: Exchange, take: ConsumeResponse<unknown>): Promise<unknown> {
    const { queryId = randomUUID() } = request;
    const allowedMs = request.timeoutMs ?? timeoutMs;
    const timeout = AbortSignal.timeout(allowedMs + graceMs);
    const signal = request.signal ? AbortSignal.any([request.signal, timeout]) : timeout;
    try {
      request.signal?.throwIfAborted();
      const { sql, params, body } = request;
      const settings = {
        ...profiles[request.profile],
        log_comment: request.name,
        max_execution_time: allowedMs / 1_000,
        ...request.settings,
      };
      const answer = await connection.send({ sql, queryId, settings, params, body, signal });
      return await take(answer, signal);
    } catch (raw) {
      if (request.signal?.aborted) throw request.signal.reason;
      // The error does not come from the server.
      if (isRunlakeError(raw)) throw raw;
      logger.debug({ query: request.name, queryId }, 'a statement to ClickHouse failed');
      throw clickhouseError(timeout.aborted ? timeout.reason : raw, {
        ...request.statement,
        name: request.name,
        queryId,
      });
    }
  }

  function buildQueryExchange(query: Query, profile: Profile, suffix: string): Exchange {
    const { external, settings, sql, ...rest } = query;
    const table = external && encodeExternalTable(external);
    return {
      ...rest,
      body: table?.body,
      sql: sql + suffix,
      settings: { ...settings, ...table?.settings },
      profile,
      statement: { kind: 'query' },
    };
  }

  const ask = (query: Query, profile: Profile, suffix: string) => exchange(buildQueryExchange(query, profile, suffix));

  let openedSlots: Promise<QuerySlots> | undefined;

  function slots(): Promise<QuerySlots> {
    openedSlots ??= openSlots().catch((error) => {
      openedSlots = undefined;
      throw error;
    });
    return openedSlots;
  }

  async function openSlots(): Promise<QuerySlots> {
    if (querySlots !== undefined) return new QuerySlots(querySlots);
    const sql = `SELECT toUInt32(getSetting('max_threads')) AS threads`;
    // This query serves all organisations and takes no slot.
    const [row] = await runForRunlake(() => query<{ threads: number }>({ name: 'threads', sql }));
    return new QuerySlots(Math.max(minSlots, slotsPerThread * row!.threads));
  }

  async function insertBody({ name, table, columns, format, body, id, ...rest }: InsertBody) {
    await exchange({
      ...rest,
      name,
      queryId: `${id}-${randomUUID()}`,
      sql: `INSERT INTO ${table} (${columns.join(', ')}) FORMAT ${format}`,
      body: { bytes: body, contentType: 'application/octet-stream' },
      profile: 'insert',
      statement: { kind: 'insert', table },
    });
  }

  const query = async <Row>(request: Query) => {
    const answer = await ask(request, 'read', '\nFORMAT JSONEachRow');
    return JSON.parse(answer.toString('utf8')) as Row[];
  };

  return {
    query,
    queryText: ({ format, ...request }) => ask(request, 'read', `\nFORMAT ${format}`),
    queryToFile: async ({ format, path, ...request }) => {
      const take: ConsumeResponse<{ bytes: number }> = (answer, signal) => saveResponse(answer, path, signal);
      try {
        return await exchange(buildQueryExchange(request, 'file', `\nFORMAT ${format}`), take);
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
