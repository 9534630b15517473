/**
 * Flow control for the events that a worker sends to the parent process. Each run has its own send window.
 *
 * Invariant: a worker sends an event only while the unacknowledged events of its run cost less than the window, so the
 * last event that it sends may exceed the window. The buffered events of all runs of the process together cost at most
 * `maxBufferedBytes`. The cost of an event is its size in bytes plus a fixed amount, because for a small event its
 * objects cost more than its bytes.
 *
 *   1. An event is sent if no event is buffered and the window is not full; otherwise it is buffered.
 *   2. The parent process acknowledges events after the log has stored them; then the next buffered events are sent.
 *   3. If the buffers exceed the limit, the run with the largest buffer fails with STREAM_BUFFER_FULL.
 */
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import { type Chunk, computeEventCost } from '../messages.ts';

/** The buffers of all send windows of a process. */
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
    largest?.fail(runlakeError('STREAM_BUFFER_FULL', { bytes: largest.bufferedBytes, limit: this.#maxBytes }));
  }
}

export interface SendWindowOptions {
  readonly windowBytes: number;
  readonly send: (chunk: Chunk) => void;
  /**
   * Called once, if this window has the largest buffer when the buffers exceed the limit. The buffered events of this
   * window are dropped.
   */
  readonly onFull: (error: Error) => void;
}

export class SendWindow {
  readonly #options: SendWindowOptions;
  readonly #onBuffered: (bytes: number) => void;
  #buffer: (Chunk | undefined)[] = [];
  /** Index of the first event in `#buffer` that has not been sent. */
  #next = 0;
  #bufferedBytes = 0;
  #unacknowledgedBytes = 0;
  #failure: Error | undefined;
  #isClosed = false;
  #onEmpty: (() => void)[] = [];

  constructor(options: SendWindowOptions, onBuffered: (bytes: number) => void) {
    this.#options = options;
    this.#onBuffered = onBuffered;
  }

  get bufferedBytes(): number {
    return this.#bufferedBytes;
  }

  /** Sends or buffers an event. @throws STREAM_BUFFER_FULL after this window has overflowed. */
  put(chunk: Chunk): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#isClosed) return;
    if (this.#bufferedBytes === 0 && this.#unacknowledgedBytes < this.#options.windowBytes) {
      this.#send(chunk);
      return;
    }
    this.#buffer.push(chunk);
    this.#addBuffered(computeEventCost(chunk));
    if (this.#failure !== undefined) throw this.#failure;
  }

  acknowledge(bytes: number): void {
    this.#unacknowledgedBytes -= bytes;
    while (this.#next < this.#buffer.length && this.#unacknowledgedBytes < this.#options.windowBytes) {
      const chunk = this.#buffer[this.#next] as Chunk;
      this.#buffer[this.#next] = undefined;
      this.#next += 1;
      this.#send(chunk);
      this.#addBuffered(-computeEventCost(chunk));
    }
    if (this.#next < this.#buffer.length) return;
    this.#drop();
  }

  /** Resolves when no event is buffered. @throws STREAM_BUFFER_FULL */
  async waitUntilEmpty(): Promise<void> {
    if (this.#bufferedBytes > 0) await new Promise<void>((resolve) => this.#onEmpty.push(resolve));
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Drops all buffered and future events, because the run is ending. */
  close(): void {
    this.#isClosed = true;
    this.#drop();
  }

  fail(error: Error): void {
    this.#failure ??= error;
    this.close();
    this.#options.onFull(error);
  }

  #send(chunk: Chunk): void {
    this.#unacknowledgedBytes += computeEventCost(chunk);
    this.#options.send(chunk);
  }

  #addBuffered(bytes: number): void {
    this.#bufferedBytes += bytes;
    this.#onBuffered(bytes);
  }

  #drop(): void {
    this.#buffer = [];
    this.#next = 0;
    if (this.#bufferedBytes > 0) this.#addBuffered(-this.#bufferedBytes);
    for (const resolve of this.#onEmpty.splice(0)) resolve();
  }
}
