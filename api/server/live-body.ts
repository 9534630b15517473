/**
 * The body of a streaming response.
 *
 * Invariant: items of the source are sent in order and at most once. The source is closed exactly once. At most one
 * item is read beyond what the socket accepts.
 *
 *   1. The response headers and a first heartbeat are sent immediately.
 *   2. Items that the source has ready are collected and sent as one chunk. While the socket is full, no item is read.
 *   3. A heartbeat is sent every `heartbeatMs`, unless the socket is full.
 *   4. When the source ends, the body ends. If the source fails, the result of `failed` is sent first. When the server
 *      stops, the result of `encodeServerStop` is sent and the body ends. For a client that reconnects by itself, the
 *      connection is aborted instead, because the client would interpret a clean end as the end of the stream.
 *   5. If the caller loses access, `failed` is called with the cause, its result is sent, and the body ends.
 *   6. If the client disconnects before the body ends, `left` is called once.
 */
import { Readable } from 'node:stream';
import { runlakeError } from '../../infra/errors/runlake-error.ts';

export interface LiveSource<Item> extends AsyncIterable<Item> {
  /** Returns the next item if it is available without waiting. */
  ready?(): Item | undefined;
  /** Ends the iteration. Idempotent. */
  close(): void;
}

/** Text, or bytes that are sent as they are. */
export type BodyPart = string | Uint8Array;

export interface LiveBodyOptions<Item> {
  readonly source: LiveSource<Item>;
  /** Returns the parts to send for an item, in order. An empty list skips the item. */
  encode(item: Item): readonly BodyPart[];
  readonly heartbeat: string;
  readonly heartbeatMs: number;
  /** Returns the last bytes to send if the source fails. */
  encodeSourceError(error: unknown): Uint8Array;
  /** Aborted when the server stops. */
  readonly stopping: AbortSignal;
  /** Aborted when the caller loses access; see `ActiveAccess.ended`. */
  readonly accessEnded: AbortSignal | undefined;
  /** Returns the last bytes to send if the server stops. Undefined if the client reconnects by itself. */
  readonly encodeServerStop: (() => Uint8Array) | undefined;
  /** Called once if the client disconnects before the body ends. */
  onClientDisconnect?(): void;
}

const maxChunkBytes = 64 * 1024;
/** Maximum time for a client to receive the remaining bytes after the body has ended. */
const finalSendTimeoutMs = 30_000;

export function createLiveBody<Item>(options: LiveBodyOptions<Item>): Readable {
  return new LiveBody(options);
}

class LiveBody<Item> extends Readable {
  readonly #options: LiveBodyOptions<Item>;
  readonly #timer: NodeJS.Timeout;
  #finalSendTimer: NodeJS.Timeout | undefined;
  #parts: BodyPart[] = [];
  #bytes = 0;
  #flushing = false;
  #full = false;
  #onDrain: (() => void) | undefined;
  #ended = false;

  constructor(options: LiveBodyOptions<Item>) {
    super({ highWaterMark: maxChunkBytes });
    this.#options = options;
    this.push(options.heartbeat);
    this.#timer = setInterval(() => {
      if (!this.#full && !this.#ended) this.#full = !this.push(options.heartbeat);
    }, options.heartbeatMs);
    options.stopping.addEventListener('abort', this.#stop);
    options.accessEnded?.addEventListener('abort', this.#endWithoutAccess);
    if (options.stopping.aborted) this.#stop();
    else if (options.accessEnded?.aborted) this.#endWithoutAccess();
    else void this.#pump();
  }

  override _read(): void {
    this.#full = false;
    this.#onDrain?.();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    const hasDisconnected = !this.#ended;
    this.#close();
    this.#onDrain?.();
    clearTimeout(this.#finalSendTimer);
    if (hasDisconnected) this.#options.onClientDisconnect?.();
    callback(error);
  }

  async #pump(): Promise<void> {
    const { source, encode, encodeSourceError } = this.#options;
    try {
      for await (const item of source) {
        for (let next: Item | undefined = item; next !== undefined; next = this.#full ? undefined : source.ready?.()) {
          if (this.#ended) return;
          this.#collect(encode(next));
          if (this.#bytes >= maxChunkBytes) this.#flush();
        }
        if (this.#full) await new Promise<void>((resolve) => (this.#onDrain = resolve));
      }
      this.#end();
    } catch (error) {
      this.#finalSendTimer = setTimeout(() => this.destroy(), finalSendTimeoutMs).unref();
      this.#end(encodeSourceError(error));
    }
  }

  #collect(parts: readonly BodyPart[]): void {
    for (const part of parts) {
      this.#parts.push(part);
      this.#bytes += typeof part === 'string' ? Buffer.byteLength(part) : part.byteLength;
    }
    if (this.#flushing || this.#bytes === 0) return;
    this.#flushing = true;
    // Runs after all available items have been read.
    process.nextTick(() => {
      this.#flushing = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#bytes === 0 || this.#ended) return;
    // Allocates one buffer per chunk. Allocating a buffer for each small part would dominate the cost of an event.
    const chunk = Buffer.allocUnsafe(this.#bytes);
    let at = 0;
    for (const part of this.#parts) {
      if (typeof part === 'string') at += chunk.write(part, at);
      else {
        chunk.set(part, at);
        at += part.byteLength;
      }
    }
    this.#parts = [];
    this.#bytes = 0;
    this.#full = !this.push(chunk);
  }

  readonly #stop = (): void => {
    const { encodeServerStop } = this.#options;
    if (encodeServerStop !== undefined) {
      this.#end(encodeServerStop());
      return;
    }
    this.#flush();
    this.#close();
    this.destroy(runlakeError('DRAINING'));
  };

  readonly #endWithoutAccess = (): void => {
    const { encodeSourceError, accessEnded } = this.#options;
    if (this.#ended) return;
    this.#finalSendTimer = setTimeout(() => this.destroy(), finalSendTimeoutMs).unref();
    this.#end(encodeSourceError(accessEnded?.reason));
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
    this.#options.accessEnded?.removeEventListener('abort', this.#endWithoutAccess);
    this.#options.source.close();
  }
}
