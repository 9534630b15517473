import type { FromWorker } from './worker-messages.ts';
import type { Chunk } from './worker-pool.ts';

/** Sends what is put in during one turn of the event loop as one message: a message a chunk would halve what a worker can stream. */
export class Outbox {
  readonly #send: (messages: readonly FromWorker[]) => void;
  #waiting: FromWorker[] = [];
  /** The last of `#waiting`, where it is of chunks: those that follow of the same run go with it. */
  #open: { readonly kind: 'chunks'; readonly key: number; readonly chunks: Chunk[] } | undefined;

  constructor(send: (messages: readonly FromWorker[]) => void) {
    this.#send = send;
  }

  put(message: FromWorker): void {
    if (this.#waiting.length === 0) setImmediate(() => this.flush());
    if (message.kind === 'chunks') {
      if (this.#open?.key === message.key) {
        this.#open.chunks.push(...message.chunks);
        return;
      }
      this.#open = { ...message, chunks: [...message.chunks] };
      this.#waiting.push(this.#open);
    } else {
      this.#open = undefined;
      this.#waiting.push(message);
    }
  }

  flush(): void {
    const messages = this.#waiting;
    this.#waiting = [];
    this.#open = undefined;
    if (messages.length > 0) this.#send(messages);
  }
}
