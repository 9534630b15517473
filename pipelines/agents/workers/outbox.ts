import { packChunks } from './packed-chunks.ts';
import type { FromWorker } from './worker-messages.ts';
import type { Chunk } from './worker-pool.ts';

/** Chunks of one run that follow each other. */
interface OpenChunks {
  readonly key: number;
  readonly chunks: Chunk[];
}

/** Sends what is put in during one turn of the event loop as one message: a message a chunk would halve what a worker can stream. */
export class Outbox {
  readonly #send: (messages: readonly FromWorker[]) => void;
  #waiting: (FromWorker | OpenChunks)[] = [];
  /** The last of `#waiting`, where it is of chunks: those that follow of the same run go with it. */
  #open: OpenChunks | undefined;

  constructor(send: (messages: readonly FromWorker[]) => void) {
    this.#send = send;
  }

  put(message: FromWorker): void {
    this.#add(message);
    this.#open = undefined;
  }

  putChunk(key: number, chunk: Chunk): void {
    if (this.#open?.key === key) {
      this.#open.chunks.push(chunk);
      return;
    }
    this.#open = { key, chunks: [chunk] };
    this.#add(this.#open);
  }

  flush(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#open = undefined;
    if (waiting.length > 0) this.#send(waiting.map(asMessage));
  }

  #add(message: FromWorker | OpenChunks): void {
    if (this.#waiting.length === 0) setImmediate(() => this.flush());
    this.#waiting.push(message);
  }
}

function asMessage(waiting: FromWorker | OpenChunks): FromWorker {
  if ('kind' in waiting) return waiting;
  return { kind: 'chunks', key: waiting.key, packed: packChunks(waiting.chunks) };
}
