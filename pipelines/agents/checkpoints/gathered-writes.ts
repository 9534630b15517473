/**
 * Batches the writes of one saver into few statements.
 *
 * Invariant: one statement is in flight at a time. Each statement runs under the lease and is atomic.
 *
 *   1. Added parts are buffered while a statement is in flight and, if `batchDelayMs` is set, until this delay has
 *      passed.
 *   2. One statement writes all buffered parts. If two parts write the same row, the result is as if they were written
 *      in order.
 *   3. Without `batchDelayMs`, `add` resolves or rejects with its statement. With `batchDelayMs`, `add` returns early;
 *      after the first failed statement nothing more is written, and every later `add` and `settled` rejects with
 *      that error.
 *   4. `settled` sends the buffered parts at once. Call it before reads and at the end.
 *   5. Above `maxBufferedBytes`, `add` waits for its statement even with `batchDelayMs`.
 */
import type { CheckpointPart, WritePart } from './leased-statements.ts';

export interface GatheredPart {
  readonly checkpoints: readonly CheckpointPart[];
  readonly writes: readonly WritePart[];
}

export interface GatheredWritesOptions {
  /** Sends one statement. Rejects if the part was not written. */
  readonly send: (part: GatheredPart) => Promise<void>;
  /** How long to buffer parts. If undefined, `add` waits until its part is written. */
  readonly batchDelayMs?: number | undefined;
  /** Called once with the first error, if `batchDelayMs` is set. */
  readonly onFailure?: ((error: unknown) => void) | undefined;
}

const maxBufferedBytes = 4 * 1024 * 1024;

/** A statement that accepts parts until it is sent. */
interface Statement {
  readonly parts: GatheredPart[];
  bytes: number;
  /** Sends the statement as soon as the previous one has finished. */
  readonly go: () => void;
  readonly written: Promise<void>;
}

export class GatheredWrites {
  readonly #options: GatheredWritesOptions;
  #open: Statement | undefined;
  /** Settles when the newest statement has finished; never rejects. */
  #last: Promise<void> = Promise.resolve();
  #failure: { readonly reason: unknown } | undefined;

  constructor(options: GatheredWritesOptions) {
    this.#options = options;
  }

  /**
   * Adds a part to the next statement. Rejects with the error of its statement or, with `batchDelayMs`, of an earlier
   * one.
   */
  async add(part: GatheredPart): Promise<void> {
    this.#requireNoFailure();
    this.#open ??= this.#begin();
    const statement = this.#open;
    statement.parts.push(part);
    statement.bytes += countBytes(part);
    if (this.#options.batchDelayMs !== undefined && statement.bytes <= maxBufferedBytes) return;
    statement.go();
    await statement.written;
  }

  /** Resolves when all added parts are written. With `batchDelayMs`, rejects if a statement failed. */
  async settled(): Promise<void> {
    this.#open?.go();
    await this.#last;
    this.#requireNoFailure();
  }

  #begin(): Statement {
    const { batchDelayMs, send, onFailure } = this.#options;
    const parts: GatheredPart[] = [];
    const before = this.#last;
    let go = (): void => undefined;
    const due = new Promise<void>((resolve) => {
      go = resolve;
    });
    const timer = batchDelayMs === undefined ? undefined : setTimeout(go, batchDelayMs);
    const written = (async () => {
      await due;
      clearTimeout(timer);
      await before;
      this.#open = undefined;
      this.#requireNoFailure();
      await send(mergeParts(parts));
    })();
    this.#last = written.catch((reason: unknown) => {
      if (batchDelayMs === undefined || this.#failure !== undefined) return;
      this.#failure = { reason };
      onFailure?.(reason);
    });
    return { parts, bytes: 0, go, written };
  }

  #requireNoFailure(): void {
    if (this.#failure !== undefined) throw this.#failure.reason;
  }
}

/**
 * Merges parts as the database would. If several parts write the same row, the last part replaces the earlier parts.
 * For ordinary writes (index >= 0), the first part is used instead.
 */
function mergeParts(parts: readonly GatheredPart[]): GatheredPart {
  if (parts.length === 1) return parts[0]!;
  const checkpoints = new Map<string, CheckpointPart>();
  const writes = new Map<string, WritePart>();
  for (const part of parts) {
    for (const each of part.checkpoints) {
      const key = JSON.stringify([each.namespace, each.checkpointId]);
      const before = checkpoints.get(key);
      checkpoints.set(key, before === undefined ? each : { ...each, blobs: [...before.blobs, ...each.blobs] });
    }
    for (const each of part.writes) {
      const key = JSON.stringify([each.namespace, each.checkpointId, each.taskId, each.index]);
      if (each.index < 0 || !writes.has(key)) writes.set(key, each);
    }
  }
  return { checkpoints: [...checkpoints.values()], writes: [...writes.values()] };
}

function countBytes({ checkpoints, writes }: GatheredPart): number {
  const blobs = [...checkpoints.flatMap((each) => each.blobs), ...writes];
  return blobs.reduce((sum, { bytes }) => sum + (bytes?.byteLength ?? 0), 0);
}
