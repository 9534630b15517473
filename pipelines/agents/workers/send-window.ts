/**
 * Events of the runs of one worker on their way to the front.
 *
 * Invariant: the events of a run that the front has not acknowledged cost at most the window, or are one single event; those that wait
 * for it cost at most `maxBufferedBytes` for all runs of the process. Both count a fixed cost for each event, since small events cost
 * objects and not bytes.
 *
 *   1. An event is sent if none waits and the window has room, else it waits.
 *   2. The front acknowledges events that the log has taken; the next ones that wait are sent.
 *   3. Where too much waits, the run with the most of it fails with STREAM_BUFFER_FULL.
 */
import { fault } from '../../../infra/errors/runlake-error.ts';
import type { Chunk } from './worker-pool.ts';

/** What an event costs beside its data and its names: the record of the log, and objects on both sides. */
export const eventOverheadBytes = 256;

export function eventCost({ mode, event, namespace, data }: Chunk): number {
  return data.byteLength + mode.length + event.length + namespace.length + eventOverheadBytes;
}

/** What waits in all send windows of a process. */
export class SendBuffers {
  readonly #maxBytes: number;
  readonly #windows = new Set<SendWindow>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  open(options: SendWindowOptions): SendWindow {
    const window: SendWindow = new SendWindow(options, (bytes) => {
      this.#bytes += bytes;
      if (window.bufferedBytes === 0) this.#windows.delete(window);
      else this.#windows.add(window);
      if (this.#bytes > this.#maxBytes) this.#failLargest();
    });
    return window;
  }

  #failLargest(): void {
    const [largest] = [...this.#windows].sort((one, other) => other.bufferedBytes - one.bufferedBytes);
    largest?.fail(fault('STREAM_BUFFER_FULL', { bytes: largest.bufferedBytes, limit: this.#maxBytes }));
  }
}

export interface SendWindowOptions {
  readonly windowBytes: number;
  readonly send: (chunk: Chunk) => void;
  /** Called once, when too much waits; everything that waits has been dropped. */
  readonly onFull: (error: Error) => void;
}

export class SendWindow {
  readonly #options: SendWindowOptions;
  readonly #onBuffered: (bytes: number) => void;
  #waiting: (Chunk | undefined)[] = [];
  /** The first of `#waiting` that has not been sent. */
  #next = 0;
  #bufferedBytes = 0;
  #unacknowledgedBytes = 0;
  #failure: Error | undefined;
  #closed = false;
  #onEmpty: (() => void)[] = [];

  constructor(options: SendWindowOptions, onBuffered: (bytes: number) => void) {
    this.#options = options;
    this.#onBuffered = onBuffered;
  }

  get bufferedBytes(): number {
    return this.#bufferedBytes;
  }

  /** @throws STREAM_BUFFER_FULL from then on when too much has waited. */
  put(chunk: Chunk): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#closed) return;
    if (this.#bufferedBytes === 0 && this.#unacknowledgedBytes < this.#options.windowBytes) {
      this.#send(chunk);
      return;
    }
    this.#waiting.push(chunk);
    this.#buffered(eventCost(chunk));
    if (this.#failure !== undefined) throw this.#failure;
  }

  acknowledge(bytes: number): void {
    this.#unacknowledgedBytes -= bytes;
    while (this.#next < this.#waiting.length && this.#unacknowledgedBytes < this.#options.windowBytes) {
      const chunk = this.#waiting[this.#next] as Chunk;
      this.#waiting[this.#next] = undefined;
      this.#next += 1;
      this.#send(chunk);
      this.#buffered(-eventCost(chunk));
    }
    if (this.#next < this.#waiting.length) return;
    this.#drop();
  }

  /** Resolves when nothing waits. @throws STREAM_BUFFER_FULL */
  async empty(): Promise<void> {
    if (this.#bufferedBytes > 0) await new Promise<void>((resolve) => this.#onEmpty.push(resolve));
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Drops what waits: the run is to end. */
  close(): void {
    this.#closed = true;
    this.#drop();
  }

  fail(error: Error): void {
    this.#failure ??= error;
    this.close();
    this.#options.onFull(error);
  }

  #send(chunk: Chunk): void {
    this.#unacknowledgedBytes += eventCost(chunk);
    this.#options.send(chunk);
  }

  #buffered(bytes: number): void {
    this.#bufferedBytes += bytes;
    this.#onBuffered(bytes);
  }

  #drop(): void {
    this.#waiting = [];
    this.#next = 0;
    if (this.#bufferedBytes > 0) this.#buffered(-this.#bufferedBytes);
    for (const resolve of this.#onEmpty.splice(0)) resolve();
  }
}
