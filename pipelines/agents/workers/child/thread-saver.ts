import type { RunnableConfig } from '@langchain/core/runnables';
import { GraphInterrupt } from '@langchain/langgraph';
import {
  BaseCheckpointSaver,
  type ChannelVersions,
  type Checkpoint,
  type CheckpointListOptions,
  type CheckpointMetadata,
  type CheckpointPendingWrite,
  type CheckpointTuple,
  MemorySaver,
  type PendingWrite,
} from '@langchain/langgraph-checkpoint';
import type pg from 'pg';
import { buildThreadKey, splitThreadKey } from '../../checkpoints/copy-checkpoints.ts';
import { type EarlyAckOptions, type Lease, LeasedSaver } from '../../checkpoints/leased-saver.ts';

/**
 * The task id under which LangGraph stores writes that belong to no task, such as a resume value that names no
 * interrupt.
 */
const noTaskId = '00000000-0000-0000-0000-000000000000';

/** Creates the exception with which a subgraph signals an interrupt to LangGraph. It does not indicate an error. */
const createInterrupt = () => new GraphInterrupt();

/**
 * Errors of failed writes. LangGraph awaits writes only at the end of the run, so before that Node may report a failed
 * write as an unhandled rejection.
 */
const failedWrites = new WeakSet<object>();

export function isFailedWrite(error: unknown): boolean {
  return typeof error === 'object' && error !== null && failedWrites.has(error);
}

/**
 * The checkpoint saver that graph code uses in one run or query. It identifies the threads of one deployment by the ids
 * that clients use; the underlying saver uses keys that consist of deployment and thread.
 */
export class ThreadSaver extends BaseCheckpointSaver {
  readonly #saver: Pick<SettlingSaver, 'hasConsumedResume'> & BaseCheckpointSaver;
  readonly #deploymentId: string;
  readonly #onFailure: (error: unknown) => void;
  #startsWithoutState: boolean;
  #interrupted: ReadonlySet<string> = new Set();
  #isAnswered = false;

  /**
   * If `blank` is true, threads appear to have no state until the first write. `onFailure` is called as soon as a write
   * fails, which may be long before LangGraph reports the error.
   */
  constructor(
    saver: Pick<SettlingSaver, 'hasConsumedResume'> & BaseCheckpointSaver,
    deploymentId: string,
    { blank = false, onFailure = () => undefined }: { blank?: boolean; onFailure?: (error: unknown) => void } = {},
  ) {
    super(saver.serde);
    this.#saver = saver;
    this.#deploymentId = deploymentId;
    this.#startsWithoutState = blank;
    this.#onFailure = onFailure;
  }

  /**
   * Marks the subgraphs in these namespaces as interrupted at a breakpoint, so that they do not continue from their
   * heads. Reading the head of a marked namespace throws the interrupt that LangGraph would throw at the breakpoint.
   */
  markInterrupted(namespaces: ReadonlySet<string>): void {
    this.#interrupted = namespaces;
  }

  /**
   * Hides the stored resume value if an earlier attempt of the run has used it, so that LangGraph does not use it
   * again.
   *
   * @returns whether an earlier attempt used the resume value.
   */
  async hideConsumedResume(threadId: string): Promise<boolean> {
    this.#isAnswered = (await this.#saver.hasConsumedResume?.(this.#key(threadId))) ?? false;
    return this.#isAnswered;
  }

  // LangGraph calls this method without its object when the state of a subgraph is updated.
  override getNextVersion = (current: number | undefined): number => this.#saver.getNextVersion(current);

  override async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    if (this.#startsWithoutState) return undefined;
    const { checkpoint_ns, checkpoint_id } = config.configurable ?? {};
    if (this.#interrupted.has(checkpoint_ns) && checkpoint_id === undefined) throw createInterrupt();
    const tuple = await this.#saver.getTuple(this.#toStored(config));
    if (tuple === undefined) return undefined;
    const { pendingWrites } = tuple;
    const isAnswer = ([task, channel]: CheckpointPendingWrite) => task === noTaskId && channel === '__resume__';
    return this.#tupleToClient(
      this.#isAnswered && pendingWrites
        ? { ...tuple, pendingWrites: pendingWrites.filter((each) => !isAnswer(each)) }
        : tuple,
    );
  }

  override async *list(config: RunnableConfig, options?: CheckpointListOptions): AsyncGenerator<CheckpointTuple> {
    if (this.#startsWithoutState) return;
    for await (const tuple of this.#saver.list(this.#toStored(config), options)) yield this.#tupleToClient(tuple);
  }

  override async put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig> {
    this.#startsWithoutState = false;
    return this.#toClient(
      await this.#reportFailure(this.#saver.put(this.#toStored(config), checkpoint, metadata, newVersions)),
    );
  }

  override putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string): Promise<void> {
    return this.#reportFailure(this.#saver.putWrites(this.#toStored(config), writes, taskId));
  }

  override deleteThread(threadId: string): Promise<void> {
    return this.#saver.deleteThread(this.#key(threadId));
  }

  async #reportFailure<Result>(write: Promise<Result>): Promise<Result> {
    try {
      return await write;
    } catch (error) {
      if (typeof error === 'object' && error !== null) failedWrites.add(error);
      this.#onFailure(error);
      throw error;
    }
  }

  #key(threadId: unknown): string {
    return buildThreadKey(this.#deploymentId, String(threadId));
  }

  #toStored(config: RunnableConfig): RunnableConfig {
    const threadId: unknown = config.configurable?.thread_id;
    return { ...config, configurable: { ...config.configurable, thread_id: this.#key(threadId) } };
  }

  #toClient(config: RunnableConfig): RunnableConfig {
    const { threadId } = splitThreadKey(config.configurable?.thread_id) ?? {};
    return { ...config, configurable: { ...config.configurable, thread_id: threadId } };
  }

  #tupleToClient(tuple: CheckpointTuple): CheckpointTuple {
    return {
      ...tuple,
      config: this.#toClient(tuple.config),
      ...(tuple.parentConfig && { parentConfig: this.#toClient(tuple.parentConfig) }),
    };
  }
}

/**
 * Creates checkpoint savers for runs and queries. A saver with a lease can write; a saver without a lease can only
 * read.
 */
export type SaverFactory = (lease?: Lease, early?: EarlyAckOptions) => SettlingSaver;

export interface SettlingSaver extends BaseCheckpointSaver {
  /**
   * Available only in savers that acknowledge writes early. Resolves when all writes are stored.
   *
   * @throws the error of a write that failed.
   */
  settled?(): Promise<void>;
  /**
   * Available only in persistent savers. Resolves to whether a task of the thread has used a resume value of the run.
   */
  hasConsumedResume?(key: string): Promise<boolean>;
}

/**
 * Returns a function that creates savers. Without Postgres connections, the savers keep all state in the memory of this
 * process.
 */
export function openSavers(connections: pg.Pool | undefined): SaverFactory {
  if (connections === undefined) {
    const memory = new MemorySaver();
    return () => memory;
  }
  return (lease, early) => new LeasedSaver(connections, lease, early);
}
