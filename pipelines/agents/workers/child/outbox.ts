import { Socket } from 'node:net';
import { Worker } from 'node:worker_threads';
import { isRunlakeError, runlakeError } from '../../../../infra/errors/runlake-error.ts';
import {
  computeWorkerFrameLimits,
  type FrameLimits,
  FrameReader,
  parentFrameLimits,
  pipeDescriptor,
  requireFewValues,
  requireSize,
} from '../frames.ts';
import { decodeMessage, encodeMessage } from '../message-codec.ts';
import type { Chunk, MessageFromWorker } from '../messages.ts';

export interface ParentPipe {
  /** Writes the buffers. Calls `sent` when the operating system has accepted all bytes. */
  write(buffers: readonly Uint8Array[], sent?: () => void): void;
}

/**
 * Opens the worker's end of the pipe to the parent process, which has spawned this process as a `ProjectProcess`. The
 * process exits when the pipe closes, which happens at the latest when the parent process ends.
 */
export function openParentPipe(onMessage: (message: unknown) => void): ParentPipe {
  // Bind `process.exit` now, because project code may replace it later.
  const exit = process.exit.bind(process);
  const pipe = new Socket({ fd: pipeDescriptor, readable: true, writable: true });
  const reader = new FrameReader(parentFrameLimits, ({ head }) => onMessage(JSON.parse(head.toString('utf8'))));
  pipe.on('data', (bytes: Buffer) => reader.push(bytes));
  pipe.on('error', () => exit(0));
  pipe.on('close', () => exit(0));
  return {
    write(buffers, sent) {
      pipe.cork();
      for (const buffer of buffers) pipe.write(buffer);
      if (sent !== undefined) pipe.write('', sent);
      pipe.uncork();
    },
  };
}

/**
 * Starts a thread that kills this process soon after its parent process has ended, even if graph code blocks the event
 * loop. The thread checks the id of the parent process every second.
 */
export function watchParent(): void {
  const watch = new Worker(
    `const { workerData } = require('node:worker_threads');
     setInterval(() => process.ppid !== workerData && process.kill(process.pid, 'SIGKILL'), 1_000);`,
    { eval: true, workerData: process.ppid, stdout: false, execArgv: [], env: {} },
  );
  watch.unref();
  watch.on('error', () => undefined);
}

/**
 * Batches the messages of a worker: all messages of one turn of the event loop are written together, and consecutive
 * chunks of a run are combined into one message. A separate message for each chunk would halve the throughput of a
 * worker.
 */
export class Outbox {
  readonly #pipe: ParentPipe;
  #limits: FrameLimits = computeWorkerFrameLimits(0);
  #buffer: MessageFromWorker[] = [];
  /** The last message of `#buffer`, if it contains chunks. Further chunks of the same run are added to it. */
  #open: { readonly key: number; readonly chunks: Chunk[] } | undefined;

  constructor(pipe: ParentPipe) {
    this.#pipe = pipe;
  }

  /** Sets the limits that the parent process enforces for messages of this worker. */
  set limits(limits: FrameLimits) {
    this.#limits = limits;
  }

  put(message: MessageFromWorker): void {
    this.#add(message);
    this.#open = undefined;
  }

  putChunk(key: number, chunk: Chunk): void {
    if (this.#open?.key === key) {
      this.#open.chunks.push(chunk);
      return;
    }
    this.#open = { key, chunks: [chunk] };
    this.#add({ kind: 'chunks', ...this.#open });
  }

  /** Adds a message and flushes at once. Calls `sent` when the operating system has accepted all bytes. */
  send(message: MessageFromWorker, sent?: () => void): void {
    this.put(message);
    this.flush(sent);
  }

  flush(sent?: () => void): void {
    const waiting = this.#buffer;
    this.#buffer = [];
    this.#open = undefined;
    if (waiting.length > 0)
      this.#pipe.write(
        waiting.flatMap((each) => this.#encode(each)),
        sent,
      );
  }

  #add(message: MessageFromWorker): void {
    if (this.#buffer.length === 0) setImmediate(() => this.flush());
    this.#buffer.push(message);
  }

  #encode(message: MessageFromWorker): Uint8Array[] {
    const buffers = encodeMessage(message);
    const refusal = this.#findRefusal(message.kind, buffers);
    return refusal === undefined ? buffers : encodeMessage(replaceRefused(message, refusal));
  }

  /**
   * Returns why the parent process would refuse a message; undefined if it accepts the message. Makes the same checks as
   * the parent process, because a refused message ends the worker with all its runs.
   */
  #findRefusal(kind: MessageFromWorker['kind'], buffers: readonly Uint8Array[]): string | undefined {
    const [, head, ...body] = buffers.map((each) => Buffer.from(each.buffer, each.byteOffset, each.byteLength));
    if (head === undefined) return undefined;
    try {
      const bodyBytes = body.reduce((sum, part) => sum + part.byteLength, 0);
      requireSize(head.byteLength, bodyBytes, this.#limits);
      requireFewValues(head, this.#limits);
      // `encodeEventChunk` has checked each chunk.
      if (kind !== 'chunks') decodeMessage({ head, body: body.length === 1 ? body[0]! : Buffer.concat(body) }, 0);
      return undefined;
    } catch (error) {
      return isRunlakeError(error) ? String(error.parameters.reason) : String(error);
    }
  }
}

/** Returns a replacement for a message that the parent process would refuse. */
function replaceRefused(message: MessageFromWorker, reason: string): MessageFromWorker {
  const error = { code: 'WORKER_MESSAGE_TOO_LARGE', params: { reason } } as const;
  switch (message.kind) {
    case 'traced': {
      const { runs, droppedRuns, droppedValues } = message.traced;
      return { ...message, traced: { runs: [], droppedRuns: droppedRuns + runs.length, droppedValues } };
    }
    case 'ended': {
      if (message.outcome.kind === 'failed') {
        const { values: _, interrupts: __, ...outcome } = message.outcome;
        return { ...message, outcome };
      }
      const { message: text } = runlakeError(error.code, error.params);
      return { ...message, outcome: { kind: 'failed', error: 'StateTooLarge', message: text } };
    }
    case 'response':
    case 'query-error':
      return { kind: 'query-error', key: message.key, error };
    default:
      return { kind: 'unusable', error };
  }
}
