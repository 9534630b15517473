import { randomUUID } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { OpenedOnce } from '../cache/opened-once.ts';
import { PromiseCache } from '../cache/promise-cache.ts';
import { isRunlakeError } from '../errors/runlake-error.ts';
import { getTenantContext } from '../fairness/tenant-context.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { Query } from './clickhouse.ts';
import { getClickHouseCode, type Statement, toClickHouseError } from './clickhouse-error.ts';
import { type Connection, type HttpResponse, type RequestBody, readResponse } from './connection.ts';
import { groupRespondingServers, readLayout, toLocalTable } from './layout.ts';
import { LayoutCache } from './layout-cache.ts';
import { QuerySlots } from './query-slots.ts';
import { ServerChoice } from './server-choice.ts';
import { buildLayoutSettings, isReadProfile, type Layout, type Profile, profiles } from './settings.ts';

export interface StatementRequest extends Omit<Query, 'timeoutMs' | 'signal'> {
  readonly profile: Profile;
  readonly statement: Pick<Statement, 'kind' | 'table'>;
  readonly body?: RequestBody;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

type TimedQuery = Query & { readonly timeoutMs: number };

export interface ServerConnections {
  /** For Runlake's internal work. */
  readonly own: Connection;
  /** For queries of organisations. */
  readonly shared: Connection;
  /** Rejects if the server does not respond. */
  readonly check: () => Promise<void>;
}

export interface SenderOptions {
  readonly servers: readonly ServerConnections[];
  readonly cluster: string | undefined;
  readonly querySlots: number | undefined;
  readonly logger: Logger;
  readonly timeoutMs: number;
}

type ResponseConsumer<T> = (answer: HttpResponse, signal: AbortSignal) => Promise<T>;

/** Maximum timeout of the queries that read the layout or check a server; both take milliseconds. */
export const maxCheckMs = 5_000;

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

/** Minimum time between two warnings that the shards cannot be found. */
const warnIntervalMs = 60_000;

/** Number of workspaces whose shard is kept. */
const maxWorkspaces = 50_000;

export const rowsFormat = 'JSONEachRow';

export function parseRows<Row>(answer: Buffer): Row[] {
  return JSON.parse(answer.toString('utf8')) as Row[];
}

/** Adds the format of the result to a query. */
export function buildQuery(query: TimedQuery, format: string, profile: Profile = 'read'): StatementRequest {
  return { ...query, sql: `${query.sql}\nFORMAT ${format}`, profile, statement: { kind: 'query' } };
}

/** Sends statements: when a query may run, with which settings, and to which server. */
export class StatementSender {
  readonly #options: SenderOptions;
  readonly #choice: ServerChoice<ServerConnections>;
  readonly #layouts: LayoutCache;
  readonly #shards: LayoutCache<ServerConnections[][]>;
  /** Index of the shard of each workspace. It never changes. */
  readonly #shardIndexes = new PromiseCache<number>({ max: maxWorkspaces });
  readonly #slots: OpenedOnce<QuerySlots>;
  #warnedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: SenderOptions) {
    const { servers, cluster } = options;
    this.#options = options;
    this.#choice = new ServerChoice(servers, ({ check }) => check());
    const timeoutMs = Math.min(options.timeoutMs, maxCheckMs);
    const query = <Row>(given: Query) => this.#readRows<Row>({ ...given, timeoutMs });
    this.#layouts = new LayoutCache(() => readLayout({ cluster, query }));
    this.#shards = new LayoutCache(() => this.#groupServers());
    this.#slots = new OpenedOnce(() => this.#openSlots());
  }

  /** Returns the layout. Without a cluster, the migrations check the layout, and it is not read here. */
  async layout(): Promise<Layout> {
    return this.#options.cluster === undefined ? { kind: 'single' } : this.#layouts.get();
  }

  /** Sends a statement to one server. */
  async send<T>(statement: StatementRequest, take: ResponseConsumer<T>): Promise<T> {
    return this.#sendInSlot(statement, (pool, request) => this.#sendToServers(pool, request, take));
  }

  /**
   * Sends a query with `shardTables` to one server of each shard, or of the shard of the workspace `shardOf`, and returns the
   * responses. If a server does not respond, or not every shard has a server in the URL, one server reads all shards through
   * its Distributed tables, in the time that is left.
   */
  async sendToShards<T>(statement: StatementRequest, take: ResponseConsumer<T>): Promise<T[]> {
    const { shardTables = [], shardOf, ...plain } = statement;
    const endsAtMs = performance.now() + plain.timeoutMs;
    const bindTables = (toName: (table: string) => string): StatementRequest => {
      const names = Object.fromEntries(shardTables.map((table) => [`stored_${table}`, toName(table)]));
      const timeoutMs = Math.max(1, Math.ceil(endsAtMs - performance.now()));
      return { ...plain, params: { ...plain.params, ...names }, timeoutMs };
    };
    const shards = shardTables.length > 0 ? await this.#findShards(shardOf) : undefined;
    try {
      if (shards !== undefined) return await this.#sendToEachShard(shards, bindTables(toLocalTable), take);
    } catch (error) {
      if (!isNoResponseError(error) || performance.now() >= endsAtMs) throw error;
    }
    const query = bindTables((table) => table);
    return [await this.send(query, take)];
  }

  /**
   * Returns the servers of each shard, or of the shard of a workspace, if all servers respond as far as is known. Returns
   * undefined if they cannot be read.
   */
  async #findShards(tenantId: string | undefined): Promise<ServerConnections[][] | undefined> {
    const { kind } = await this.layout();
    if (kind !== 'cluster' || this.#choice.hasFailures) return undefined;
    try {
      const shards = await this.#shards.get();
      if (tenantId === undefined || shards.length === 1) return shards;
      const index = await this.#shardIndexes.get(tenantId, () => this.#readShardIndex(tenantId));
      const shard = index === undefined ? undefined : shards[index];
      return shard && [shard];
    } catch (error) {
      this.#warnOfShards(error);
      return undefined;
    }
  }

  /** Each query looks up its shards again, so only some failures are logged. */
  #warnOfShards(err: unknown): void {
    const nowMs = performance.now();
    if (nowMs - this.#warnedAtMs < warnIntervalMs) return;
    this.#warnedAtMs = nowMs;
    this.#options.logger.warn({ err }, 'the shards of ClickHouse cannot be found; one server reads all of them');
  }

  /** Computes the sharding key of the tables, see `buildClusterStatements` in `migrations/cluster-statements.ts`. */
  async #readShardIndex(tenantId: string): Promise<number | undefined> {
    const [row] = await this.#readRows<{ shard: number }>({
      name: 'find-shard',
      sql: 'SELECT cityHash64({tenant:UUID}) % max(shards) AS shard FROM runlake_migrations',
      params: { tenant: tenantId },
      timeoutMs: Math.min(this.#options.timeoutMs, maxCheckMs),
    });
    return row?.shard;
  }

  /**
   * Sends a query to one server of each shard at the same time, in one slot.
   *
   * @throws the error of the first shard that fails; the queries of the others are aborted.
   */
  async #sendToEachShard<T>(
    shards: readonly (readonly ServerConnections[])[],
    query: StatementRequest,
    take: ResponseConsumer<T>,
  ): Promise<T[]> {
    return this.#sendInSlot(query, (pool, request) => {
      const failed = new AbortController();
      const signal = request.signal ? AbortSignal.any([request.signal, failed.signal]) : failed.signal;
      const sent = shards.map((replicas) => this.#sendToServers(pool, { ...request, signal }, take, replicas));
      return Promise.all(sent).catch((error: unknown) => {
        failed.abort();
        throw error;
      });
    });
  }

  /** The query of an organisation waits for a slot. */
  async #sendInSlot<T>(
    statement: StatementRequest,
    work: (pool: 'own' | 'shared', request: StatementRequest) => Promise<T>,
  ): Promise<T> {
    const layoutSettings = buildLayoutSettings(await this.layout(), statement.profile);
    const request = { ...statement, settings: { ...layoutSettings, ...statement.settings } };
    const context = isReadProfile(request.profile) ? getTenantContext() : undefined;
    if (context === undefined) return work('own', request);
    const { timeoutMs } = request;
    const signals = [request.signal, context.disconnected].filter((each) => each !== undefined);
    const signal = signals.length > 1 ? AbortSignal.any(signals) : signals[0];
    const startedAtMs = performance.now();
    return (await this.#slots.get()).run(context, { maxWaitMs: timeoutMs, signal }, (priority) => {
      // The timeout includes the wait for a slot, because callers rely on the timeout. After a long wait, a query still
      // gets a quarter of its timeout.
      const remainingMs = Math.ceil(Math.max(timeoutMs - (performance.now() - startedAtMs), timeoutMs / 4));
      const settings = { priority, ...request.settings };
      return work('shared', { ...request, signal, timeoutMs: remainingMs, settings });
    });
  }

  /**
   * If a server does not respond, a query is sent to the next server in the time that is left; other statements are
   * retried by their callers.
   */
  async #sendToServers<T>(
    pool: 'own' | 'shared',
    request: StatementRequest,
    take: ResponseConsumer<T>,
    among?: readonly ServerConnections[],
  ): Promise<T> {
    const endsAtMs = performance.now() + request.timeoutMs;
    const servers = this.#choice.order(among);
    let failure: unknown;
    for (const server of isReadProfile(request.profile) ? servers : servers.slice(0, 1)) {
      const timeoutMs = Math.ceil(endsAtMs - performance.now());
      try {
        return await sendOnce(server[pool], { ...request, timeoutMs }, take, this.#options.logger);
      } catch (error) {
        if (!isNoResponseError(error)) throw error;
        this.#choice.recordFailure(server);
        failure = error;
        if (performance.now() >= endsAtMs) break;
      }
    }
    throw failure;
  }

  async #groupServers(): Promise<ServerConnections[][]> {
    const layout = await this.layout();
    if (layout.kind !== 'cluster') return [[...this.#options.servers]];
    const timeoutMs = Math.min(this.#options.timeoutMs, maxCheckMs);
    return groupRespondingServers(this.#options.servers, layout, (server) => ({
      query: (query) => this.#readRows({ ...query, timeoutMs }, [server]),
    }));
  }

  /** Reads rows for the sender itself: without a slot, and without the settings that depend on the layout. */
  async #readRows<Row>(query: TimedQuery, among?: readonly ServerConnections[]): Promise<Row[]> {
    return parseRows(await this.#sendToServers('own', buildQuery(query, rowsFormat), readResponse, among));
  }

  async #openSlots(): Promise<QuerySlots> {
    const { querySlots, timeoutMs } = this.#options;
    if (querySlots !== undefined) return new QuerySlots(querySlots);
    const sql = `SELECT toUInt32(getSetting('max_threads')) AS threads`;
    const [row] = await this.#readRows<{ threads: number }>({ name: 'threads', sql, timeoutMs });
    return new QuerySlots(Math.max(minSlots, slotsPerThread * row!.threads));
  }
}

async function sendOnce<T>(
  connection: Connection,
  request: StatementRequest,
  take: ResponseConsumer<T>,
  logger: Logger,
): Promise<T> {
  const { name, sql, params, externalTable, body, profile, timeoutMs } = request;
  const queryId = randomUUID();
  const timeout = AbortSignal.timeout(timeoutMs + serverErrorGraceMs);
  const signal = request.signal ? AbortSignal.any([request.signal, timeout]) : timeout;
  const settings = {
    ...profiles[profile],
    log_comment: name,
    max_execution_time: timeoutMs / 1_000,
    ...request.settings,
  };
  const sendWithId = (id: string) =>
    connection.send({ sql, queryId: id, settings, params, externalTable, body, signal });
  try {
    request.signal?.throwIfAborted();
    const answer = await sendWithId(queryId).catch(async (error: unknown) => {
      if (!(isReadProfile(profile) && isClosedConnection(error))) throw error;
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
    logger.debug({ query: name, queryId }, 'a statement to ClickHouse failed');
    throw toClickHouseError(timeout.aborted ? timeout.reason : raw, { ...request.statement, name, queryId });
  }
}

/** Returns true for network errors and timeouts. Errors of the server have a number. */
function isNoResponseError(error: unknown): boolean {
  return isRunlakeError(error) && error.code === 'CLICKHOUSE_UNAVAILABLE' && getClickHouseCode(error) === undefined;
}

function isClosedConnection(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
}
