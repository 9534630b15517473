import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { ClickHouseSettings } from '@clickhouse/client';
import { OpenedOnce } from '../cache/opened-once.ts';
import { isRunlakeError } from '../errors/runlake-error.ts';
import { getTenantContext, runWithoutTenant } from '../fairness/tenant-context.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { ClickHouse, InsertBody, Query } from './clickhouse.ts';
import { getClickHouseCode, type Statement, toClickHouseError } from './clickhouse-error.ts';
import {
  type Connection,
  type HttpResponse,
  openConnection,
  type RequestBody,
  readResponse,
  saveResponse,
} from './connection.ts';
import { type Layout, readLayout } from './layout.ts';
import { LayoutCache } from './layout-cache.ts';
import { QuerySlots } from './query-slots.ts';
import { ServerChoice } from './server-choice.ts';
import { buildLayoutSettings, type Profile, profiles } from './settings.ts';

export type { ClickHouse } from './clickhouse.ts';

export interface ClickHouseOptions {
  /**
   * Address as `http(s)://user:password@host:port/database`. Without a path, it is the default database of the user. Several
   * addresses, separated by commas, are the addresses of all servers of a cluster.
   */
  readonly url: string;
  /** Name of the cluster in `system.clusters`, if the tables are in a cluster. */
  readonly cluster?: string | undefined;
  /** Trusted CA certificates in PEM format. */
  readonly authorities?: readonly string[] | undefined;
  readonly logger: Logger;
  /** Timeout of statements without a timeout of their own. */
  readonly timeoutMs: number;
  /**
   * Maximum number of concurrent statements on each server for Runlake's internal work. Further statements wait.
   * Default: 16.
   */
  readonly maxConnections?: number;
  /**
   * Maximum number of concurrent queries of organisations (`query-slots.ts`). Default: derived from ClickHouse's
   * `max_threads`.
   */
  readonly querySlots?: number;
}

const rowsFormatClause = '\nFORMAT JSONEachRow';
/** Maximum timeout of the queries that read the layout or check a server; both take milliseconds. */
const maxCheckMs = 5_000;

/**
 * Time that the client waits in addition to the timeout of a query. ClickHouse stops the query at the timeout, and the
 * client waits for the server's error.
 */
const serverErrorGraceMs = 2_000;

/**
 * Number of query slots per thread. Running queries share the CPU with a new query, and even paused queries use some
 * CPU. Under a flood of other queries, a query took seven times as long with eight slots per thread, and twice as long
 * with two (docs/decisions/0103).
 */
const slotsPerThread = 2;
const minSlots = 4;

/** An HTTP request to ClickHouse for a statement of any kind. */
interface Exchange extends Pick<Query, 'name' | 'sql' | 'params' | 'externalTable' | 'timeoutMs'> {
  readonly signal?: AbortSignal | undefined;
  readonly profile: Profile;
  readonly statement: Pick<Statement, 'kind' | 'table'>;
  readonly settings?: ClickHouseSettings | undefined;
  readonly body?: RequestBody | undefined;
  /** True for the query that reads the layout. This query is sent without the settings that depend on the layout. */
  readonly readsLayout?: boolean;
  /** Id of the query. Must be unique among the queries of the server. Default: random. */
  readonly queryId?: string;
}

type ResponseConsumer<T> = (answer: HttpResponse, signal: AbortSignal) => Promise<T>;

/**
 * Opens a ClickHouse client. The client connects when the first statement is sent. It keeps connections alive and
 * reuses them.
 */
export function openClickHouse(options: ClickHouseOptions): ClickHouse {
  const { url, cluster, authorities, logger, timeoutMs, maxConnections = 16, querySlots } = options;
  const urls = url.split(',').map((each) => each.trim());
  const connections = urls.map((each) => {
    const address = new URL(each);
    return {
      own: openConnection({ address, authorities, maxConnections }),
      shared: openConnection({ address, authorities }),
    };
  });
  const checkMs = Math.min(timeoutMs, maxCheckMs);
  const choice = new ServerChoice([...connections.keys()], (index) =>
    runWithoutTenant(() => servers[index]!.ping(checkMs)),
  );

  async function exchange(request: Exchange): Promise<Buffer>;
  async function exchange<T>(request: Exchange, take: ResponseConsumer<T>): Promise<T>;
  async function exchange(request: Exchange, take: ResponseConsumer<unknown> = readResponse): Promise<unknown> {
    const context = 'readonly' in profiles[request.profile] ? getTenantContext() : undefined;
    if (context === undefined) return send('own', request, take);
    const signals = [request.signal, context.disconnected].filter((each) => each !== undefined);
    const signal = signals.length > 1 ? AbortSignal.any(signals) : signals[0];
    const allowedMs = request.timeoutMs ?? timeoutMs;
    const startedAtMs = performance.now();
    return (await slots.get()).run(context, { maxWaitMs: allowedMs, signal }, (priority) => {
      // The timeout includes the wait for a slot, because callers rely on the timeout. After a long wait, a query still
      // gets a quarter of its timeout.
      const remainingMs = Math.ceil(Math.max(allowedMs - (performance.now() - startedAtMs), allowedMs / 4));
      const settings = { priority, ...request.settings };
      return send('shared', { ...request, signal, timeoutMs: remainingMs, settings }, take);
    });
  }

  /**
   * Sends a request. If a server does not respond, a query is sent to the next server in the time that is left; other
   * statements are retried by their callers.
   */
  async function send(pool: 'own' | 'shared', request: Exchange, take: ResponseConsumer<unknown>): Promise<unknown> {
    const settingsForLayout = request.readsLayout ? {} : buildLayoutSettings(await layout(), request.profile);
    const settings = { ...settingsForLayout, ...request.settings };
    const endsAtMs = performance.now() + (request.timeoutMs ?? timeoutMs);
    const [first, ...others] = choice.order();
    const retryServers = 'readonly' in profiles[request.profile] ? others : [];
    for (let server = first!; ; ) {
      const remainingMs = Math.ceil(endsAtMs - performance.now());
      try {
        return await sendOnce(connections[server]![pool], { ...request, settings, timeoutMs: remainingMs }, take);
      } catch (error) {
        if (!isNoResponseError(error)) throw error;
        choice.recordFailure(server);
        const next = retryServers.shift();
        if (next === undefined || performance.now() >= endsAtMs) throw error;
        server = next;
      }
    }
  }

  async function sendOnce(
    connection: Connection,
    request: Exchange,
    take: ResponseConsumer<unknown>,
  ): Promise<unknown> {
    const { queryId = randomUUID() } = request;
    const allowedMs = request.timeoutMs ?? timeoutMs;
    const timeout = AbortSignal.timeout(allowedMs + serverErrorGraceMs);
    const signal = request.signal ? AbortSignal.any([request.signal, timeout]) : timeout;
    try {
      request.signal?.throwIfAborted();
      const { sql, params, externalTable, body } = request;
      const settings = {
        ...profiles[request.profile],
        log_comment: request.name,
        max_execution_time: allowedMs / 1_000,
        ...request.settings,
      };
      const sendWithId = (id: string) =>
        connection.send({ sql, queryId: id, settings, params, externalTable, body, signal });
      const answer = await sendWithId(queryId).catch(async (error: unknown) => {
        if (!('readonly' in profiles[request.profile] && isClosedConnection(error))) throw error;
        // Servers and proxies close idle connections. This can happen just as a query is sent on such a connection. After
        // a turn of the event loop, the agent knows all connections that are closed.
        await nextTurn();
        return sendWithId(randomUUID());
      });
      return await take(answer, signal);
    } catch (raw) {
      if (request.signal?.aborted) throw request.signal.reason;
      // An error of the catalogue does not come from the server and needs no conversion.
      if (isRunlakeError(raw)) throw raw;
      logger.debug({ query: request.name, queryId }, 'a statement to ClickHouse failed');
      throw toClickHouseError(timeout.aborted ? timeout.reason : raw, {
        ...request.statement,
        name: request.name,
        queryId,
      });
    }
  }

  function buildQueryExchange(query: Query, profile: Profile, suffix: string): Exchange {
    return { ...query, sql: query.sql + suffix, profile, statement: { kind: 'query' } };
  }

  const ask = (query: Query, profile: Profile, suffix: string) => exchange(buildQueryExchange(query, profile, suffix));

  const layouts = new LayoutCache(() => runWithoutTenant(() => readLayout({ cluster, query: queryForLayout })));

  /** Returns the layout. Without a cluster, the migrations check the layout, and it is not read here. */
  async function layout(): Promise<Layout> {
    return cluster === undefined ? { kind: 'single' } : layouts.get();
  }

  const slots = new OpenedOnce(openSlots);

  async function openSlots(): Promise<QuerySlots> {
    if (querySlots !== undefined) return new QuerySlots(querySlots);
    const sql = `SELECT toUInt32(getSetting('max_threads')) AS threads`;
    // This query is executed on behalf of all organisations and takes no slot.
    const [row] = await runWithoutTenant(() => query<{ threads: number }>({ name: 'threads', sql }));
    return new QuerySlots(Math.max(minSlots, slotsPerThread * row!.threads));
  }

  async function insertBody({ name, table, columns, format, body, ...rest }: InsertBody) {
    await exchange({
      ...rest,
      name,
      sql: `INSERT INTO ${table} (${columns.join(', ')}) FORMAT ${format}`,
      body: { bytes: body, contentType: 'application/octet-stream' },
      profile: 'insert',
      statement: { kind: 'insert', table },
    });
  }

  const parseRows = <Row>(answer: Buffer) => JSON.parse(answer.toString('utf8')) as Row[];
  const query = async <Row>(request: Query) => parseRows<Row>(await ask(request, 'read', rowsFormatClause));
  const queryForLayout = async <Row>(request: Query) => {
    const statement = buildQueryExchange({ ...request, timeoutMs: checkMs }, 'read', rowsFormatClause);
    return parseRows<Row>(await exchange({ ...statement, readsLayout: true }));
  };

  const clickhouse: ClickHouse = {
    cluster,
    layout,
    get servers() {
      return servers;
    },
    query,
    queryText: ({ format, ...request }) => ask(request, 'read', `\nFORMAT ${format}`),
    queryToFile: async ({ format, path, ...request }) => {
      const take: ResponseConsumer<{ bytes: number }> = (answer, signal) => saveResponse(answer, path, signal);
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
    close: async () => {
      for (const { own, shared } of connections) {
        own.close();
        shared.close();
      }
      if (urls.length > 1) await Promise.all(servers.map((server) => server.close()));
    },
  };
  const servers = urls.length === 1 ? [clickhouse] : urls.map((each) => openClickHouse({ ...options, url: each }));
  return clickhouse;
}

/** Returns true for network errors and timeouts. Errors of the server have a number. */
function isNoResponseError(error: unknown): boolean {
  return isRunlakeError(error) && error.code === 'CLICKHOUSE_UNAVAILABLE' && getClickHouseCode(error) === undefined;
}

function isClosedConnection(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
}
