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
  type PendingWrite,
} from '@langchain/langgraph-checkpoint';
import { splitThreadKey, threadKey } from '../checkpoints/thread-key.ts';
import type { SettlingSaver } from './saver-for.ts';

/** Under which the library keeps what is said to no task, such as an answer that says not to which question. */
const noTask = '00000000-0000-0000-0000-000000000000';

/** What a graph within throws where it waits, by which the library knows; it is no error. */
const waitsHere = () => new GraphInterrupt();

/** The library waits for writes only at the end, so that the failure of one may be taken for nobody's. */
const failedWrites = new WeakSet<object>();

export function isFailedWrite(error: unknown): boolean {
  return typeof error === 'object' && error !== null && failedWrites.has(error);
}

/**
 * The saver of one run or question, as graph code has it: it knows the threads of one deployment, by the ids that clients know.
 * The saver behind it names them by deployment and thread.
 */
export class ThreadSaver extends BaseCheckpointSaver {
  readonly #saver: Pick<SettlingSaver, 'tookAnswer'> & BaseCheckpointSaver;
  readonly #deploymentId: string;
  readonly #onFailure: (error: unknown) => void;
  #blank: boolean;
  #held: ReadonlySet<string> = new Set();
  #isAnswered = false;

  /**
   * `blank`: until something is written, threads have no state. `onFailure` hears of what could not be written when that is known, which
   * may be long before the library says so.
   */
  constructor(
    saver: Pick<SettlingSaver, 'tookAnswer'> & BaseCheckpointSaver,
    deploymentId: string,
    { blank = false, onFailure = () => undefined }: { blank?: boolean; onFailure?: (error: unknown) => void } = {},
  ) {
    super(saver.serde);
    this.#saver = saver;
    this.#deploymentId = deploymentId;
    this.#blank = blank;
    this.#onFailure = onFailure;
  }

  /**
   * Graphs of these namespaces, within the one that runs, do not go on from their heads: they are where they are to stop, and whoever
   * asks for their state is told so as the library itself would tell it.
   */
  hold(namespaces: ReadonlySet<string>): void {
    this.#held = namespaces;
  }

  /**
   * Where an earlier attempt of the run has got its answer to its question, that is not there to be taken again from here on.
   *
   * @returns whether it has.
   */
  async leaveOutAnswer(threadId: string): Promise<boolean> {
    this.#isAnswered = (await this.#saver.tookAnswer?.(this.#key(threadId))) ?? false;
    return this.#isAnswered;
  }

  override getNextVersion(current: number | undefined): number {
    return this.#saver.getNextVersion(current);
  }

  override async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    if (this.#blank) return undefined;
    const { checkpoint_ns, checkpoint_id } = config.configurable ?? {};
    if (this.#held.has(checkpoint_ns) && checkpoint_id === undefined) throw waitsHere();
    const tuple = await this.#saver.getTuple(this.#inside(config));
    if (tuple === undefined) return undefined;
    const { pendingWrites } = tuple;
    const isAnswer = ([task, channel]: CheckpointPendingWrite) => task === noTask && channel === '__resume__';
    return this.#tupleOutside(
      this.#isAnswered && pendingWrites
        ? { ...tuple, pendingWrites: pendingWrites.filter((each) => !isAnswer(each)) }
        : tuple,
    );
  }

  override async *list(config: RunnableConfig, options?: CheckpointListOptions): AsyncGenerator<CheckpointTuple> {
    if (this.#blank) return;
    for await (const tuple of this.#saver.list(this.#inside(config), options)) yield this.#tupleOutside(tuple);
  }

  override async put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig> {
    this.#blank = false;
    return this.#outside(await this.#noting(this.#saver.put(this.#inside(config), checkpoint, metadata, newVersions)));
  }

  override putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string): Promise<void> {
    return this.#noting(this.#saver.putWrites(this.#inside(config), writes, taskId));
  }

  override deleteThread(threadId: string): Promise<void> {
    return this.#saver.deleteThread(this.#key(threadId));
  }

  async #noting<Result>(write: Promise<Result>): Promise<Result> {
    try {
      return await write;
    } catch (error) {
      if (typeof error === 'object' && error !== null) failedWrites.add(error);
      this.#onFailure(error);
      throw error;
    }
  }

  #key(threadId: unknown): string {
    return threadKey(this.#deploymentId, String(threadId));
  }

  #inside(config: RunnableConfig): RunnableConfig {
    const threadId: unknown = config.configurable?.thread_id;
    return { ...config, configurable: { ...config.configurable, thread_id: this.#key(threadId) } };
  }

  #outside(config: RunnableConfig): RunnableConfig {
    const { threadId } = splitThreadKey(config.configurable?.thread_id) ?? {};
    return { ...config, configurable: { ...config.configurable, thread_id: threadId } };
  }

  #tupleOutside(tuple: CheckpointTuple): CheckpointTuple {
    return {
      ...tuple,
      config: this.#outside(tuple.config),
      ...(tuple.parentConfig && { parentConfig: this.#outside(tuple.parentConfig) }),
    };
  }
}
