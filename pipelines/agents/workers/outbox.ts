import type { ErrorParameters } from '../../../infra/errors/runlake-error.ts';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { type FrameLimits, limitsOfWorker } from './frames.ts';
import { encodeMessage } from './message-codec.ts';
import { packChunks } from './packed-chunks.ts';
import type { ParentPipe } from './parent-pipe.ts';
import type { FromWorker } from './worker-messages.ts';
import type { Chunk } from './worker-pool.ts';

/** Chunks of one run that follow each other. */
interface OpenChunks {
  readonly key: number;
  readonly chunks: Chunk[];
}

/** Sends what is put in during one turn of the event loop together: a message for each chunk would halve what a worker can stream. */
export class Outbox {
  readonly #pipe: ParentPipe;
  #limits: FrameLimits = limitsOfWorker(0);
  #waiting: (FromWorker | OpenChunks)[] = [];
  /** The last of `#waiting`, where it is of chunks: those that follow of the same run go with it. */
  #open: OpenChunks | undefined;

  constructor(pipe: ParentPipe) {
    this.#pipe = pipe;
  }

  /** Of the front, for messages of this worker. */
  set limits(limits: FrameLimits) {
    this.#limits = limits;
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

  /** Sends it at once, behind what was put in. */
  send(message: FromWorker, sent?: () => void): void {
    this.put(message);
    this.flush(sent);
  }

  flush(sent?: () => void): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#open = undefined;
    if (waiting.length > 0)
      this.#pipe.write(
        waiting.flatMap((each) => this.#encode(each)),
        sent,
      );
  }

  #add(message: FromWorker | OpenChunks): void {
    if (this.#waiting.length === 0) setImmediate(() => this.flush());
    this.#waiting.push(message);
  }

  #encode(waiting: FromWorker | OpenChunks): Uint8Array[] {
    if (!('kind' in waiting)) {
      const { key, chunks } = waiting;
      return encodeMessage({ kind: 'chunks', key, packed: packChunks(chunks) });
    }
    const buffers = encodeMessage(waiting);
    const [, head, ...body] = buffers as [Uint8Array, Uint8Array, ...Uint8Array[]];
    const bytes = body.reduce((sum, part) => sum + part.byteLength, 0);
    const { headBytes, bodyBytes } = this.#limits;
    if (head.byteLength <= headBytes && bytes <= bodyBytes) return buffers;
    return encodeMessage(inPlaceOf(waiting, { bytes: head.byteLength + bytes, limit: bodyBytes }));
  }
}

/** What is sent where the message itself is larger than the front takes. */
function inPlaceOf(message: FromWorker, sizes: ErrorParameters): FromWorker {
  const refusal = { code: 'WORKER_MESSAGE_TOO_LARGE', params: sizes } as const;
  switch (message.kind) {
    case 'traced': {
      const { runs, droppedRuns, droppedValues } = message.traced;
      return { ...message, traced: { runs: [], droppedRuns: droppedRuns + runs.length, droppedValues } };
    }
    case 'ended': {
      const { message: text } = fault(refusal.code, refusal.params);
      return { ...message, outcome: { kind: 'failed', error: 'StateTooLarge', message: text } };
    }
    case 'answer':
      return { kind: 'refusal', key: message.key, refusal };
    default:
      return { kind: 'unfit', refusal };
  }
}
