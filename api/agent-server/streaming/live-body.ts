/**
 * The body of an answer that goes on for as long as there is something to tell.
 *
 * Invariant: what the source yields goes out in order and at most once, the source is closed exactly once, and is not asked for more
 * than one item beyond what the socket has room for.
 *
 *   1. A heartbeat goes out at once, and the head of the answer with it.
 *   2. What the source yields without waiting is collected and goes out as one piece. While the socket is full nothing is taken.
 *   3. Each `heartbeatMs` a heartbeat goes out, unless the socket is full.
 *   4. It ends with the source, or when that fails, after `failed`; or when the server stops: after `stopped` or, where the client comes
 *      back by itself when the connection breaks, by breaking it, since a clean end would be taken for the end of what is told.
 *   5. When the caller loses access, the stream calls `failed` with the cause and ends.
 *   6. If the client went before that, `left` is called, once.
 */

import { Readable } from 'node:stream';
import { fault } from '../../../infra/errors/runlake-error.ts';

export interface LiveSource<Item> extends AsyncIterable<Item> {
  /** What the iteration would give next, where that is there already. */
  ready?(): Item | undefined;
  /** Ends the iteration. May be called more than once. */
  close(): void;
}

/** Text, or bytes as they are. */
export type BodyPart = string | Uint8Array;

export interface LiveBodyOptions<Item> {
  readonly source: LiveSource<Item>;
  /** The parts of an item, one after the other; none leaves it out. */
  encode(item: Item): readonly BodyPart[];
  readonly heartbeat: string;
  readonly heartbeatMs: number;
  /** What is told where the source failed. */
  failed(error: unknown): Uint8Array;
  /** Of the server. */
  readonly stopping: AbortSignal;
  /** Of the caller; see `OpenAccess.ended`. */
  readonly accessEnded: AbortSignal | undefined;
  /** What is told where the server stops; undefined: the client comes back by itself. */
  readonly stopped: (() => Uint8Array) | undefined;
  left?(): void;
}

const mostPieceBytes = 64 * 1024;
/** How long a reader that was cut off has to take what it is owed. */
const lastWordsMs = 30_000;

export function liveBody<Item>(options: LiveBodyOptions<Item>): Readable {
  return new LiveBody(options);
}

class LiveBody<Item> extends Readable {
  readonly #options: LiveBodyOptions<Item>;
  readonly #timer: NodeJS.Timeout;
  #lastWords: NodeJS.Timeout | undefined;
  #parts: BodyPart[] = [];
  #bytes = 0;
  #flushing = false;
  #full = false;
  #room: (() => void) | undefined;
  #ended = false;

  constructor(options: LiveBodyOptions<Item>) {
    super({ highWaterMark: mostPieceBytes });
    this.#options = options;
    this.push(options.heartbeat);
    this.#timer = setInterval(() => {
      if (!this.#full && !this.#ended) this.#full = !this.push(options.heartbeat);
    }, options.heartbeatMs);
    options.stopping.addEventListener('abort', this.#stop);
    options.accessEnded?.addEventListener('abort', this.#refuse);
    if (options.stopping.aborted) this.#stop();
    else if (options.accessEnded?.aborted) this.#refuse();
    else void this.#pump();
  }

  override _read(): void {
    this.#full = false;
    this.#room?.();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    const left = !this.#ended;
    this.#close();
    this.#room?.();
    clearTimeout(this.#lastWords);
    if (left) this.#options.left?.();
    callback(error);
  }

  async #pump(): Promise<void> {
    const { source, encode, failed } = this.#options;
    try {
      for await (const item of source) {
        for (let next: Item | undefined = item; next !== undefined; next = this.#full ? undefined : source.ready?.()) {
          if (this.#ended) return;
          this.#collect(encode(next));
          if (this.#bytes >= mostPieceBytes) this.#flush();
        }
        if (this.#full) await new Promise<void>((resolve) => (this.#room = resolve));
      }
      this.#end();
    } catch (error) {
      this.#lastWords = setTimeout(() => this.destroy(), lastWordsMs).unref();
      this.#end(failed(error));
    }
  }

  #collect(parts: readonly BodyPart[]): void {
    for (const part of parts) {
      this.#parts.push(part);
      this.#bytes += typeof part === 'string' ? Buffer.byteLength(part) : part.byteLength;
    }
    if (this.#flushing || this.#bytes === 0) return;
    this.#flushing = true;
    // Runs once everything that is there already was taken from the source.
    process.nextTick(() => {
      this.#flushing = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#bytes === 0 || this.#ended) return;
    // Buffers for each of the small texts of an event would cost more than all else that is done for it.
    const piece = Buffer.allocUnsafe(this.#bytes);
    let at = 0;
    for (const part of this.#parts) {
      if (typeof part === 'string') at += piece.write(part, at);
      else {
        piece.set(part, at);
        at += part.byteLength;
      }
    }
    this.#parts = [];
    this.#bytes = 0;
    this.#full = !this.push(piece);
  }

  readonly #stop = (): void => {
    const { stopped } = this.#options;
    if (stopped !== undefined) {
      this.#end(stopped());
      return;
    }
    this.#flush();
    this.#close();
    this.destroy(fault('DRAINING'));
  };

  readonly #refuse = (): void => {
    const { failed, accessEnded } = this.#options;
    if (this.#ended) return;
    this.#lastWords = setTimeout(() => this.destroy(), lastWordsMs).unref();
    this.#end(failed(accessEnded?.reason));
  };

  #end(last?: Uint8Array): void {
    if (this.#ended) return;
    if (last !== undefined) this.#collect([last]);
    this.#flush();
    this.#close();
    this.push(null);
  }

  #close(): void {
    this.#ended = true;
    clearInterval(this.#timer);
    this.#options.stopping.removeEventListener('abort', this.#stop);
    this.#options.accessEnded?.removeEventListener('abort', this.#refuse);
    this.#options.source.close();
  }
}
