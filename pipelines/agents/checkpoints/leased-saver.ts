import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { RunnableConfig } from '@langchain/core/runnables';
import {
  type ChannelVersions,
  type Checkpoint,
  type CheckpointListOptions,
  type CheckpointMetadata,
  type CheckpointTuple,
  type PendingWrite,
  WRITES_IDX_MAP,
} from '@langchain/langgraph-checkpoint';
import { PostgresSaver } from '@langchain/langgraph-checkpoint-postgres';
import type pg from 'pg';
import { fault, isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { databaseFault } from '../../../infra/postgres/faults.ts';
import { type GatheredPart, GatheredWrites } from './gathered-writes.ts';
import { jsonbText } from './jsonb-text.ts';
import { deleteThreadSql, tookAnswerSql, writeSql, writeValues } from './leased-statements.ts';
import { OwnHeads } from './own-heads.ts';
import { PageSizes } from './page-sizes.ts';
import { type StoredTuple, selectTuples, tupleOf } from './stored-tuples.ts';
import { splitThreadKey } from './thread-key.ts';

/** What a saver writes under. */
export interface Lease {
  /** A run's `lease_token`, or the `write_token` of a thread that is held. */
  readonly leaseToken: string;
  readonly runId?: string;
  readonly attempt?: number;
  readonly graphId?: string;
  readonly assistantId?: string;
  /** Of every checkpoint. What the library says of one, and {@link Owner}, goes over it. */
  readonly metadata?: Readonly<Record<string, unknown>>;
}

/** What a client finds in the metadata of a checkpoint about who wrote it. */
interface Owner {
  run_id?: string;
  run_attempt?: number;
  graph_id?: string;
  assistant_id?: string;
}

/** `put` and `putWrites` answer before anything is written; the order of writes, and who reads, know no difference. */
export interface EarlyAnswers {
  /** For how long more is waited for. */
  readonly gatherMs: number;
  /** Hears, once, of what could not be written; those who put or read afterwards hear of it, too. */
  readonly onFailure: (error: unknown) => void;
}

/** How long a database that is away is waited for. */
const patienceMs = 10_000;

/** Whether `error` says that another process has the run, or that it was ended: what was to be written was not. */
export function isLeaseLost(error: unknown): boolean {
  return isRunlakeError(error) && error.code === 'LEASE_LOST';
}

/**
 * Checkpoints of threads in the schema `agents`. Thread ids are keys of `thread-key.ts`.
 *
 * Invariant: nothing is written by who does not hold the run or thread. What is put, several at a time where they come together, and
 * each `deleteThread` is one statement: 1. it locks the row of the run or thread where the token still holds; 2. writes only if there was one. Who takes
 * a run over changes that row, so either waits for 2 to be committed or makes 1 find nothing. A crash in between leaves
 * nothing, being one statement.
 *
 * Versions of channels are a number and a random part, as two branches of a thread count from the same number on, and a
 * blob that is there already is not written again.
 */
export class LeasedSaver extends PostgresSaver {
  readonly #pool: pg.Pool;
  readonly #lease: Lease | undefined;
  readonly #early: EarlyAnswers | undefined;
  /** By thread. A lease holds for one; whoever puts into another hears that. */
  readonly #writes = new Map<string, GatheredWrites>();
  readonly #heads = new OwnHeads();

  /** Without a lease it only reads. */
  constructor(pool: pg.Pool, lease?: Lease, early?: EarlyAnswers) {
    super(pool, undefined, { schema: 'agents' });
    this.#pool = pool;
    this.#lease = lease;
    this.#early = early;
  }

  /** Resolves when all that was put is written. @throws what kept it from being written, where writers did not wait. */
  async settled(): Promise<void> {
    for (const writes of this.#writes.values()) await writes.settled();
  }

  // Text where the base class says number; the library takes either.
  override getNextVersion(current: number | undefined): number {
    const before = current === undefined ? 0 : Number.parseInt(String(current), 10);
    return `${String(before + 1).padStart(16, '0')}.${randomBytes(8).toString('hex')}` as unknown as number;
  }

  /** The tables come with the migrations of Runlake. */
  override async setup(): Promise<void> {}

  override async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    await this.settled();
    const { thread_id, checkpoint_ns = '', checkpoint_id } = config.configurable ?? {};
    const exact = Boolean(checkpoint_id);
    const own = exact ? undefined : this.#heads.row(thread_id, checkpoint_ns);
    if (own !== undefined) return tupleOf(this.serde, own);
    const { rows } = await this.#ask<StoredTuple>({
      name: exact ? 'agents_checkpoint' : 'agents_latest_checkpoint',
      text: exact
        ? `${selectTuples} WHERE thread_id = $1 AND checkpoint_ns = $2 AND checkpoint_id = $3`
        : `${selectTuples} WHERE thread_id = $1 AND checkpoint_ns = $2 ORDER BY checkpoint_id DESC LIMIT 1`,
      values: exact ? [thread_id, checkpoint_ns, checkpoint_id] : [thread_id, checkpoint_ns],
    });
    return rows[0] && tupleOf(this.serde, rows[0]);
  }

  /** Newest first, so many at a time as fit into memory. */
  override async *list(config: RunnableConfig, options?: CheckpointListOptions): AsyncGenerator<CheckpointTuple> {
    await this.settled();
    const { filter: given, limit = Number.POSITIVE_INFINITY } = options ?? {};
    // As metadata is stored.
    const filter = given && JSON.parse(jsonbText(JSON.stringify(given)));
    const pages = new PageSizes();
    let before = options?.before;
    for (let left = limit, wanted = 0; left > 0; left -= wanted) {
      wanted = Math.min(left, pages.nextRows);
      const [where, values] = this._searchWhere(config, filter, before);
      values.push(wanted);
      const text = `${selectTuples} ${where} ORDER BY checkpoint_id DESC LIMIT $${values.length}`;
      const { rows } = await this.#ask<StoredTuple>({ text, values });
      pages.note(rows);
      for (const row of rows) yield await tupleOf(this.serde, row);
      if (rows.length < wanted) return;
      before = { configurable: { checkpoint_id: rows.at(-1)?.checkpoint_id } };
    }
  }

  /** Whether a task has taken an answer that the run gave, in this attempt or an earlier one. */
  async tookAnswer(key: string): Promise<boolean> {
    await this.settled();
    const { rows } = await this.#ask<{ taken: boolean }>({ text: tookAnswerSql, values: [key, this.#lease?.runId] });
    return rows[0]?.taken === true;
  }

  /** @throws LEASE_LOST */
  override async put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig> {
    const { thread_id, checkpoint_ns = '', checkpoint_id } = config.configurable ?? {};
    const { lease, threadId } = this.#under(thread_id);
    const { channel_values: values, ...stored } = checkpoint;
    const blobs = await Promise.all(
      Object.entries(newVersions).map(async ([channel, version]) => {
        const [type, bytes] = channel in values ? await this.serde.dumpsTyped(values[channel]) : ['empty', undefined];
        return { channel, version: String(version), type, bytes };
      }),
    );
    const part = {
      namespace: checkpoint_ns,
      checkpointId: checkpoint.id,
      parentId: checkpoint_id,
      checkpoint: jsonbText(JSON.stringify(stored)),
      metadata: await this.#metadata(metadata, lease, threadId),
      blobs,
    };
    await this.#add(thread_id, { checkpoints: [part], writes: [] });
    this.#heads.put(thread_id, part, stored.channel_versions);
    return { configurable: { thread_id, checkpoint_ns, checkpoint_id: checkpoint.id } };
  }

  /**
   * A task's ordinary writes stay as they were first written; its error, interrupt, resume and schedule are replaced.
   *
   * @throws LEASE_LOST
   */
  override async putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string): Promise<void> {
    const { thread_id, checkpoint_ns = '', checkpoint_id } = config.configurable ?? {};
    this.#under(thread_id);
    // One statement cannot write a row twice: of writes with one number the last counts.
    const byIndex = new Map(writes.map((write, place) => [WRITES_IDX_MAP[write[0]] ?? place, write]));
    const parts = await Promise.all(
      [...byIndex].map(async ([index, [channel, value]]) => {
        const [type, bytes] = await this.serde.dumpsTyped(value);
        const place = { namespace: checkpoint_ns, checkpointId: checkpoint_id, taskId };
        return { ...place, index, channel: String(channel), type, bytes };
      }),
    );
    await this.#add(thread_id, { checkpoints: [], writes: parts });
    this.#heads.write(thread_id, parts);
  }

  /** @throws LEASE_LOST */
  override async deleteThread(key: string): Promise<void> {
    await this.settled();
    const { lease, deploymentId, threadId } = this.#under(key);
    this.#heads.forget();
    await this.#write('agents_delete_checkpoints', deleteThreadSql, key, [deploymentId, threadId, lease.leaseToken]);
  }

  async #add(key: string, part: GatheredPart): Promise<void> {
    try {
      await this.#writesOf(key).add(part);
    } catch (error) {
      // Nobody knows how much of it is there.
      this.#heads.forget();
      throw error;
    }
  }

  #writesOf(key: string): GatheredWrites {
    const found = this.#writes.get(key);
    if (found !== undefined) return found;
    const { lease, deploymentId, threadId } = this.#under(key);
    const held = [deploymentId, threadId, lease.leaseToken];
    const made = new GatheredWrites({
      ...this.#early,
      send: ({ checkpoints, writes }) =>
        this.#write('agents_write_state', writeSql, key, [...held, ...writeValues(checkpoints, writes, lease.runId)]),
    });
    this.#writes.set(key, made);
    return made;
  }

  #under(key: unknown) {
    const parts = splitThreadKey(key);
    if (parts === undefined) throw fault('STATE_NOT_OWN', { thread: String(key).slice(0, 100) });
    if (this.#lease === undefined)
      throw fault('INTERNAL', {}, { cause: 'this saver only reads: it was made without a lease' });
    return { ...parts, lease: this.#lease };
  }

  /** Of what an earlier run left in metadata that is carried on, nothing says whose it was. */
  async #metadata(metadata: CheckpointMetadata, lease: Lease, threadId: string): Promise<string> {
    const { run_id, run_attempt, graph_id, assistant_id, ...rest } = metadata as CheckpointMetadata<Owner>;
    const { source, step, parents } = rest;
    const owner: Owner = {
      ...(lease.runId !== undefined && { run_id: lease.runId }),
      ...(lease.attempt !== undefined && { run_attempt: lease.attempt }),
      ...(lease.graphId !== undefined && { graph_id: lease.graphId }),
      ...(lease.assistantId !== undefined && { assistant_id: lease.assistantId }),
    };
    const [, bytes] = await this.serde.dumpsTyped({
      ...rest,
      ...lease.metadata,
      ...{ source, step, parents },
      ...owner,
      thread_id: threadId,
    });
    return jsonbText(new TextDecoder().decode(bytes));
  }

  async #write(name: string, text: string, key: string, values: unknown[]): Promise<void> {
    const { rows } = await this.#ask<{ holds: boolean }>({ name, text, values });
    if (rows[0]?.holds !== true) throw fault('LEASE_LOST', { thread: key });
  }

  /**
   * Every statement here may be sent again: it changes the same rows to the same values, and only while the lease holds. So a
   * database that is away for a moment, such as one that starts again, costs a run nothing but time.
   */
  async #ask<Row extends pg.QueryResultRow>(query: pg.QueryConfig): Promise<pg.QueryResult<Row>> {
    const startedAtMs = performance.now();
    for (let pauseMs = 50; ; pauseMs = Math.min(pauseMs * 2, 1_000)) {
      try {
        return await this.#pool.query<Row>(query);
      } catch (raw) {
        const error = databaseFault(raw);
        const mayPass = isRunlakeError(error) && error.retryable;
        if (!mayPass || performance.now() - startedAtMs > patienceMs) throw error;
        await pause(pauseMs);
      }
    }
  }
}
