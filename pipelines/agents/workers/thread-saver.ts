import type { RunnableConfig } from '@langchain/core/runnables';
import {
  BaseCheckpointSaver,
  type ChannelVersions,
  type Checkpoint,
  type CheckpointListOptions,
  type CheckpointMetadata,
  type CheckpointTuple,
  type PendingWrite,
} from '@langchain/langgraph-checkpoint';
import { splitThreadKey, threadKey } from '../checkpoints/thread-key.ts';

/** The library waits for writes only at the end, so that the failure of one may be taken for nobody's. */
const failedWrites = new WeakSet<object>();

export function isFailedWrite(error: unknown): boolean {
  return typeof error === 'object' && error !== null && failedWrites.has(error);
}

/**
 * The saver of one run or question, as graph code has it: it knows the threads of one organisation, by the ids that clients know.
 * The saver behind it names them by organisation and thread.
 */
export class ThreadSaver extends BaseCheckpointSaver {
  readonly #saver: BaseCheckpointSaver;
  readonly #organizationId: string;
  readonly #onFailure: (error: unknown) => void;
  #blank: boolean;

  /**
   * `blank`: until something is written, threads have no state. `onFailure` hears of what could not be written when that is known, which
   * may be long before the library says so.
   */
  constructor(
    saver: BaseCheckpointSaver,
    organizationId: string,
    { blank = false, onFailure = () => undefined }: { blank?: boolean; onFailure?: (error: unknown) => void } = {},
  ) {
    super(saver.serde);
    this.#saver = saver;
    this.#organizationId = organizationId;
    this.#blank = blank;
    this.#onFailure = onFailure;
  }

  override getNextVersion(current: number | undefined): number {
    return this.#saver.getNextVersion(current);
  }

  override async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    if (this.#blank) return undefined;
    const tuple = await this.#saver.getTuple(this.#inside(config));
    return tuple && this.#tupleOutside(tuple);
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
    return threadKey(this.#organizationId, String(threadId));
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
