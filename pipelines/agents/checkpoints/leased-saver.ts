import { randomBytes } from 'node:crypto';
import type { RunnableConfig } from '@langchain/core/runnables';
import {
  BaseCheckpointSaver,
  type ChannelVersions,
  type Checkpoint,
  type CheckpointListOptions,
  type CheckpointMetadata,
  type CheckpointTuple,
  type PendingWrite,
  WRITES_IDX_MAP,
} from '@langchain/langgraph-checkpoint';
import type pg from 'pg';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { retryWhileUnavailable } from '../../../infra/postgres/database-error.ts';
import { pause } from '../../../infra/timeouts/backoff.ts';
import { splitThreadKey } from './copy-checkpoints.ts';
import { GatheredWrites } from './gathered-writes.ts';
import { buildWriteParameters, consumedResumeSql, deleteThreadSql, writeSql } from './leased-statements.ts';
import {
  AdaptivePageSize,
  buildListQuery,
  type StoredTuple,
  selectTuplesSql,
  toJsonbText,
  toTuple,
} from './stored-tuples.ts';

/** The lease under which a saver writes, and the ids that the saver adds to checkpoints. */
export interface Lease {
  /** The `lease_token` of a run, or the `write_token` of a thread that is locked for an update of its state. */
  readonly leaseToken: string;
  /** Key of the only thread that the lease is for. If absent, only the database checks the thread. */
  readonly threadKey?: string;
  readonly runId?: string;
  readonly attempt?: number;
  readonly graphId?: string;
  readonly assistantId?: string;
  /**
   * Metadata of every checkpoint. `source`, `step` and `parents` of the library and the fields of {@link Owner} take
   * precedence.
   */
  readonly metadata?: Readonly<Record<string, unknown>>;
}

/** Fields in the metadata of a checkpoint that identify its writer. */
interface Owner {
  run_id?: string;
  run_attempt?: number;
  graph_id?: string;
  assistant_id?: string;
}

/**
 * Options for returning from `put` and `putWrites` before the data is written. Writes keep their order, and reads wait
 * for them.
 */
export interface EarlyAckOptions {
  /** How long to buffer writes for one statement. */
  readonly batchDelayMs: number;
  /**
   * Called once, with the error of the first failed write. Every later write or read of the saver rejects with the same
   * error.
   */
  readonly onFailure: (error: unknown) => void;
}

/** What the serializer of the library returns for a value that `JSON.stringify` refuses. */
const unserialisable = Buffer.from('"[unable to serialize, circular reference is too complex to analyze]"');

function findReason(value: unknown): string {
  try {
    JSON.stringify(value);
  } catch (error) {
    // The message for a circular value has a drawing of the circle in further lines.
    return String(error instanceof Error ? error.message : error).split('\n', 1)[0] as string;
  }
  return 'it contains a value that JSON cannot represent';
}

/** Maximum difference between the clocks of two processes that a saver waits for. */
const maxClockDifferenceMs = 10_000;
/** Milliseconds between the epoch of UUIDs, 1582-10-15, and that of Unix. */
const uuidEpochMs = 12_219_292_800_000;

/**
 * Returns the time in the id of a checkpoint, which LangGraph takes from the clock of its process; undefined if the id is
 * not a UUID of version 6.
 */
function readCheckpointTimeMs(checkpointId: string): number | undefined {
  const [, high, middle, low] = /^([0-9a-f]{8})-([0-9a-f]{4})-6([0-9a-f]{3})-/i.exec(checkpointId) ?? [];
  return low === undefined ? undefined : Number(BigInt(`0x${high}${middle}${low}`) / 10_000n) - uuidEpochMs;
}

/** @throws CLOCK_BEHIND for a thread with a state that is `behindMs` ahead of the clock of this process. */
function refuseBehind(key: string, behindMs: number): never {
  const thread = splitThreadKey(key)?.threadId ?? key;
  throw runlakeError('CLOCK_BEHIND', { thread, seconds: Math.ceil(behindMs / 1_000) });
}

/** Waits until the clock of this process is past the time of a checkpoint. @throws CLOCK_BEHIND */
async function waitUntilPast(key: string, checkpointId: string): Promise<void> {
  const timeMs = readCheckpointTimeMs(checkpointId) ?? Number.NEGATIVE_INFINITY;
  // The clock may be set back during the pause.
  for (let behindMs = timeMs - Date.now(); behindMs >= 0; behindMs = timeMs - Date.now()) {
    if (behindMs > maxClockDifferenceMs) refuseBehind(key, behindMs);
    await pause(behindMs + 1);
  }
}

/**
 * Returns true if `error` means that nothing was written because the lease was lost: another process owns the run, or
 * the run has ended.
 */
export function isLeaseLost(error: unknown): boolean {
  return isRunlakeError(error) && error.code === 'LEASE_LOST';
}

/**
 * Checkpoint saver of LangGraph for the schema `agents`. Thread ids are thread keys (`buildThreadKey`).
 *
 * Invariant: the saver writes only while it holds the lease of the run or thread. Each batch of puts, and each
 * `deleteThread`, is one statement that
 *
 *   1. locks the row of the run or thread, if the token is still its lease;
 *   2. writes only if step 1 found the row.
 *
 * A process that takes over the run must change that row, so it waits for the commit of a statement in progress. Later
 * statements of this saver find no row in step 1. Because a batch is one statement, a crash leaves no partial batch.
 *
 * The state of a thread is its checkpoint with the highest id, which begins with a time. If the clock of the process that
 * wrote it is ahead, a saver with a lease waits before it returns this or an older checkpoint, because those that follow
 * would have lower ids, and the state in them would be lost. For the same reason it refuses to write checkpoints if the
 * clock was set back since it read or wrote the last one.
 *
 * A channel version is a number plus a random suffix. Without the suffix, two branches of a thread would use the same
 * versions, and the saver does not overwrite an existing blob.
 */
export class LeasedSaver extends BaseCheckpointSaver {
  readonly #pool: pg.Pool;
  readonly #lease: Lease | undefined;
  readonly #early: EarlyAckOptions | undefined;
  /** Writes by thread key. A lease is valid for one thread only. */
  readonly #writes = new Map<string, GatheredWrites>();
  /** Highest id of a checkpoint that this saver has read or written, by namespace and thread. */
  readonly #newestIds = new Map<string, string>();

  /** @param lease If undefined, the saver is read-only. */
  constructor(pool: pg.Pool, lease?: Lease, earlyAcks?: EarlyAckOptions) {
    super();
    this.#pool = pool;
    this.#lease = lease;
    this.#early = earlyAcks;
  }

  /** Resolves when all puts are written. With `early`, rejects with the error of a write that failed. */
  async settled(): Promise<void> {
    for (const writes of this.#writes.values()) await writes.settled();
  }

  // Returns text although the base class declares a number; the library accepts both.
  override getNextVersion(current: number | undefined): number {
    const before = current === undefined ? 0 : Number.parseInt(String(current), 10);
    return `${String(before + 1).padStart(16, '0')}.${randomBytes(8).toString('hex')}` as unknown as number;
  }

  /** @throws CLOCK_BEHIND */
  override async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    await this.settled();
    const { thread_id, checkpoint_ns = '', checkpoint_id } = config.configurable ?? {};
    const hasCheckpointId = Boolean(checkpoint_id);
    const { rows } = await this.#query<StoredTuple & { readonly newest_id?: string }>({
      name: hasCheckpointId ? 'agents_checkpoint' : 'agents_latest_checkpoint',
      text: hasCheckpointId
        ? `SELECT tuple.*, (SELECT max(checkpoint_id) FROM agents.checkpoints WHERE thread_id = $1 AND checkpoint_ns = $2) AS newest_id
           FROM (${selectTuplesSql} WHERE thread_id = $1 AND checkpoint_ns = $2 AND checkpoint_id = $3) tuple`
        : `${selectTuplesSql} WHERE thread_id = $1 AND checkpoint_ns = $2 ORDER BY checkpoint_id DESC LIMIT 1`,
      values: hasCheckpointId ? [thread_id, checkpoint_ns, checkpoint_id] : [thread_id, checkpoint_ns],
    });
    if (rows[0] === undefined) return undefined;
    const newestId = rows[0].newest_id ?? rows[0].checkpoint_id;
    const ownId = this.#newestIds.get(`${checkpoint_ns} ${thread_id}`) ?? '';
    if (this.#lease !== undefined && newestId > ownId) {
      await waitUntilPast(thread_id, newestId);
      this.#newestIds.set(`${checkpoint_ns} ${thread_id}`, newestId);
    }
    return toTuple(this.serde, rows[0]);
  }

  /** Lists checkpoints, newest first. Reads them in pages whose size in bytes is limited. */
  override async *list(config: RunnableConfig, options?: CheckpointListOptions): AsyncGenerator<CheckpointTuple> {
    await this.settled();
    const { filter: given, limit = Number.POSITIVE_INFINITY } = options ?? {};
    // Normalise the filter in the same way as stored metadata.
    const filter = given && JSON.parse(toJsonbText(JSON.stringify(given)));
    const pages = new AdaptivePageSize();
    let before = options?.before;
    for (let left = limit, pageRows = 0; left > 0; left -= pageRows) {
      pageRows = Math.min(left, pages.nextRows);
      const { rows } = await this.#query<StoredTuple>(buildListQuery(config, { filter, before, limit: pageRows }));
      pages.record(rows);
      for (const row of rows) yield await toTuple(this.serde, row);
      if (rows.length < pageRows) return;
      before = { configurable: { checkpoint_id: rows.at(-1)?.checkpoint_id } };
    }
  }

  /** Returns true if a task has consumed the resume value of this run, in this attempt or an earlier one. */
  async hasConsumedResume(key: string): Promise<boolean> {
    await this.settled();
    const { rows } = await this.#query<{ taken: boolean }>({
      text: consumedResumeSql,
      values: [key, this.#lease?.runId],
    });
    return rows[0]?.taken === true;
  }

  /** Writes a checkpoint; with `early`, returns before it is written. @throws CLOCK_BEHIND; the errors of {@link putWrites} */
  override async put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig> {
    const { thread_id, checkpoint_ns = '', checkpoint_id } = config.configurable ?? {};
    const { lease, threadId } = this.#requireLease(thread_id);
    this.#recordId(thread_id, checkpoint_ns, checkpoint.id);
    const { channel_values: values, ...stored } = checkpoint;
    const blobs = await Promise.all(
      Object.entries(newVersions).map(async ([channel, version]) => {
        const [type, bytes] =
          channel in values ? await this.#serialise(channel, values[channel]) : ['empty', undefined];
        return { channel, version: String(version), type, bytes };
      }),
    );
    const part = {
      namespace: checkpoint_ns,
      checkpointId: checkpoint.id,
      parentId: checkpoint_id,
      checkpoint: toJsonbText(JSON.stringify(stored)),
      metadata: await this.#metadata(metadata, lease, threadId),
      blobs,
    };
    await this.#getWrites(thread_id).add({ checkpoints: [part], writes: [] });
    return { configurable: { thread_id, checkpoint_ns, checkpoint_id: checkpoint.id } };
  }

  /**
   * Writes the pending writes of a task. Repeated ordinary writes are ignored; error, interrupt, resume and scheduled
   * writes are replaced.
   *
   * @throws LEASE_LOST, STATE_NOT_OWN, STATE_NOT_SERIALIZABLE
   */
  override async putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string): Promise<void> {
    const { thread_id, checkpoint_ns = '', checkpoint_id } = config.configurable ?? {};
    this.#requireLease(thread_id);
    // One statement cannot write a row twice, so keep only the last write with each index.
    const writesByIndex = new Map(writes.map((write, position) => [WRITES_IDX_MAP[write[0]] ?? position, write]));
    const parts = await Promise.all(
      [...writesByIndex].map(async ([index, [channel, value]]) => {
        const [type, bytes] = await this.#serialise(String(channel), value);
        const task = { namespace: checkpoint_ns, checkpointId: checkpoint_id, taskId };
        return { ...task, index, channel: String(channel), type, bytes };
      }),
    );
    await this.#getWrites(thread_id).add({ checkpoints: [], writes: parts });
  }

  /** Deletes all checkpoints of the thread. @throws LEASE_LOST, STATE_NOT_OWN */
  override async deleteThread(key: string): Promise<void> {
    await this.settled();
    const { lease, deploymentId, threadId } = this.#requireLease(key);
    await this.#write('agents_delete_checkpoints', deleteThreadSql, key, [deploymentId, threadId, lease.leaseToken]);
  }

  /** Records the id of a checkpoint that is to be written. @throws CLOCK_BEHIND if it is older than the last one. */
  #recordId(key: string, namespace: string, id: string): void {
    const newestId = this.#newestIds.get(`${namespace} ${key}`) ?? '';
    if (id >= newestId) {
      this.#newestIds.set(`${namespace} ${key}`, id);
      return;
    }
    const behindMs = (readCheckpointTimeMs(newestId) ?? 0) - (readCheckpointTimeMs(id) ?? Number.POSITIVE_INFINITY);
    if (behindMs > 0) refuseBehind(key, behindMs);
  }

  #getWrites(key: string): GatheredWrites {
    const found = this.#writes.get(key);
    if (found !== undefined) return found;
    const { lease, deploymentId, threadId } = this.#requireLease(key);
    const leaseParams = [deploymentId, threadId, lease.leaseToken];
    const created = new GatheredWrites({
      ...this.#early,
      send: ({ checkpoints, writes }) =>
        this.#write('agents_write_state', writeSql, key, [
          ...leaseParams,
          ...buildWriteParameters(checkpoints, writes, lease.runId),
        ]),
    });
    this.#writes.set(key, created);
    return created;
  }

  #requireLease(key: unknown) {
    const parts = splitThreadKey(key);
    if (parts === undefined) throw runlakeError('STATE_NOT_OWN', { thread: String(key).slice(0, 100) });
    if (this.#lease === undefined)
      throw runlakeError('INTERNAL', {}, { cause: 'the saver is read-only: it was created without a lease' });
    const { threadKey } = this.#lease;
    if (threadKey !== undefined && threadKey !== key) throw runlakeError('STATE_NOT_OWN', { thread: parts.threadId });
    return { ...parts, lease: this.#lease };
  }

  /**
   * Serialises the metadata of a checkpoint. Replaces the ids that LangGraph copies from the checkpoint of an earlier
   * run.
   */
  async #metadata(metadata: CheckpointMetadata, lease: Lease, threadId: string): Promise<string> {
    const { run_id, run_attempt, graph_id, assistant_id, ...rest } = metadata as CheckpointMetadata<Owner>;
    const { source, step, parents } = rest;
    const owner: Owner = {
      ...(lease.runId !== undefined && { run_id: lease.runId }),
      ...(lease.attempt !== undefined && { run_attempt: lease.attempt }),
      ...(lease.graphId !== undefined && { graph_id: lease.graphId }),
      ...(lease.assistantId !== undefined && { assistant_id: lease.assistantId }),
    };
    const [, bytes] = await this.#serialise('metadata', {
      ...rest,
      ...lease.metadata,
      ...{ source, step, parents },
      ...owner,
      thread_id: threadId,
    });
    return toJsonbText(new TextDecoder().decode(bytes));
  }

  /**
   * Serialises a value. The library stores a text instead of a value that `JSON.stringify` refuses, such as a list of
   * messages with a BigInt, so that the value would be lost.
   *
   * @throws STATE_NOT_SERIALIZABLE
   */
  async #serialise(channel: string, value: unknown): Promise<[string, Uint8Array]> {
    const [type, bytes] = await this.serde.dumpsTyped(value);
    if (bytes.length !== unserialisable.length || typeof value === 'string' || !unserialisable.equals(bytes))
      return [type, bytes];
    throw runlakeError('STATE_NOT_SERIALIZABLE', { channel, reason: findReason(value) });
  }

  async #write(name: string, text: string, key: string, values: unknown[]): Promise<void> {
    const { rows } = await this.#query<{ holds: boolean }>({ name, text, values });
    if (rows[0]?.holds !== true) throw runlakeError('LEASE_LOST', { thread: key });
  }

  /** Runs a statement. All statements of this file are idempotent and write only while the lease holds. */
  #query<Row extends pg.QueryResultRow>(query: pg.QueryConfig): Promise<pg.QueryResult<Row>> {
    return retryWhileUnavailable(() => this.#pool.query<Row>(query));
  }
}
