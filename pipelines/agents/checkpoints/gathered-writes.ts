/**
 * What one saver writes, on its way into the database.
 *
 * Invariant: one statement at a time, each under the lease and all or nothing.
 *
 *   1. What is added waits while a statement is under way and, where writers do not wait, for `gatherMs`.
 *   2. All that waits goes as one statement. Of what would be one row twice, one counts: as if they had come one after the other.
 *   3. Writers that wait hear of their own statement. Where they do not, nothing is written any more after one that failed, and
 *      everybody hears of that one.
 *   4. `settled` does not wait for more to come: it is for those who read, and for the end.
 *   5. More than `mostWaitingBytes` wait: writers wait, too.
 */
import type { CheckpointPart, WritePart } from './leased-statements.ts';

export interface GatheredPart {
  readonly checkpoints: readonly CheckpointPart[];
  readonly writes: readonly WritePart[];
}

export interface GatheringOptions {
  /** Sends one statement. @throws what keeps it from being written. */
  readonly send: (part: GatheredPart) => Promise<void>;
  /** Undefined: writers wait until what they add is written. */
  readonly gatherMs?: number | undefined;
  /** Hears once of a failure that no writer waits for. */
  readonly onFailure?: ((error: unknown) => void) | undefined;
}

const mostWaitingBytes = 4 * 1024 * 1024;

/** A statement that takes more until it goes. */
interface Statement {
  readonly parts: GatheredPart[];
  bytes: number;
  /** As soon as the one before it is done. */
  readonly go: () => void;
  readonly written: Promise<void>;
}

export class GatheredWrites {
  readonly #options: GatheringOptions;
  #open: Statement | undefined;
  /** The statement that was made last; never rejects. */
  #last: Promise<void> = Promise.resolve();
  #failure: { readonly reason: unknown } | undefined;

  constructor(options: GatheringOptions) {
    this.#options = options;
  }

  /** @throws what its statement failed with; where writers do not wait, what an earlier one failed with. */
  async add(part: GatheredPart): Promise<void> {
    this.#requireNoFailure();
    this.#open ??= this.#begin();
    const statement = this.#open;
    statement.parts.push(part);
    statement.bytes += bytesOf(part);
    if (this.#options.gatherMs !== undefined && statement.bytes <= mostWaitingBytes) return;
    statement.go();
    await statement.written;
  }

  /** Resolves when all that was added is written. @throws what kept it from that, where no writer heard of it. */
  async settled(): Promise<void> {
    this.#open?.go();
    await this.#last;
    this.#requireNoFailure();
  }

  #begin(): Statement {
    const { gatherMs, send, onFailure } = this.#options;
    const parts: GatheredPart[] = [];
    const before = this.#last;
    let go = (): void => undefined;
    const told = new Promise<void>((resolve) => {
      go = resolve;
    });
    const timer = gatherMs === undefined ? undefined : setTimeout(go, gatherMs);
    const written = (async () => {
      await told;
      clearTimeout(timer);
      await before;
      this.#open = undefined;
      this.#requireNoFailure();
      await send(asOne(parts));
    })();
    this.#last = written.catch((reason: unknown) => {
      if (gatherMs === undefined || this.#failure !== undefined) return;
      this.#failure = { reason };
      onFailure?.(reason);
    });
    return { parts, bytes: 0, go, written };
  }

  #requireNoFailure(): void {
    if (this.#failure !== undefined) throw this.#failure.reason;
  }
}

/** A task's ordinary writes stay as they were first written; all else is replaced. */
function asOne(parts: readonly GatheredPart[]): GatheredPart {
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

function bytesOf({ checkpoints, writes }: GatheredPart): number {
  const blobs = [...checkpoints.flatMap((each) => each.blobs), ...writes];
  return blobs.reduce((sum, { bytes }) => sum + (bytes?.byteLength ?? 0), 0);
}
