/** Interfaces for publishing the events of runs and for reading them, from any process. */
import type { StreamEvent } from '../../streams/stream-event.ts';
import type { RunStatus } from '../runs/run.ts';
import type { Interrupt } from '../threads/thread.ts';
import type { Chunk } from '../workers/worker-pool.ts';

export interface RunStreamStart {
  readonly deploymentId: string;
  readonly threadId: string;
  readonly runId: string;
  readonly attempt: number;
  /**
   * Number of this start in the thread (`starts`). Thread sequence numbers of the attempt begin at this number times
   * 2^32.
   */
  readonly threadStart: number;
  /** Whether events are stored so that clients can resume the stream (`stream_resumable`). */
  readonly kept: boolean;
}

/** Writes the events of one attempt and numbers them from 1. */
export interface RunStreamWriter {
  /** Resolves when the writer accepts more chunks. {@link RunStreamWriter.settled} reports publish errors. */
  write(chunks: readonly Chunk[]): Promise<void>;
  /** Resolves when all events are in the log, and durable if the stream is resumable. @throws errors of the log. */
  settled(): Promise<void>;
}

export interface RunStreamEnd {
  /**
   * JSON text of {@link RunEnd}, the data of the event with `isEnd`. Requests that wait for the run respond with it,
   * without a database query.
   */
  readonly data: Uint8Array;
  /** When the run ended, in microseconds since 1970. */
  readonly endedAtMicros: number;
}

/** Data of the end event of a run. */
export interface RunEnd {
  /** True if the log did not accept all events of the attempt, so that there is a gap before the end. */
  readonly events_missing?: boolean;
  readonly status: RunStatus;
  readonly graph_id?: string;
  /** Whether the graph is interrupted or stopped at a breakpoint. */
  readonly interrupted?: boolean;
  /** Open interrupts by task id. Omitted if they are large; readers then read them from `agents.final_values`. */
  readonly interrupts?: Readonly<Record<string, readonly Interrupt[]>>;
  /** The failure of the run, as clients see it. */
  readonly error?: { readonly error: string; readonly message: string };
  /** The failure, if no event reported it because the process of the run had died. `feedback` is then omitted. */
  readonly unsaid?: { readonly error: string; readonly message: string };
  /** Feedback links by feedback key, if the request asked for them. */
  readonly feedback?: Readonly<Record<string, string>> | undefined;
  /** The final state. Omitted if it is large; readers then read it from `agents.final_values`. */
  readonly values?: unknown;
}

export interface StreamPublisher {
  open(start: RunStreamStart): RunStreamWriter;
  /**
   * Publishes the end of a run whose final state is committed. Any process may repeat the call: the end follows every
   * event of its attempt, and a repeated end is identical in every field.
   *
   * @throws errors of the log.
   */
  publishEnd(end: RunStreamStart & RunStreamEnd): Promise<void>;
}

/** One event as readers receive it. */
export type StreamedEvent = Omit<StreamEvent, 'deploymentId' | 'threadId' | 'kept' | 'expiresAtMicros'>;

/**
 * Where a reader starts. `start`: at the oldest event that is stored or in the ring buffer of this process. `now`: at
 * the first event that arrives after the reader has attached. An object: after the event with these numbers.
 */
export type RunReadFrom = 'start' | 'now' | { readonly attempt: number; readonly seq: number };
export type ThreadReadFrom = 'start' | 'now' | { readonly threadSeq: number };

/**
 * An attached reader. Iterate it once. A reader of a run ends after the end event, which it yields; a reader of a
 * thread never ends by itself. A reader of a thread also yields the ends of its runs, except runs that were never
 * started; an end may follow the first events of the next run.
 *
 * A reader that attaches after the end was published would wait forever if the end is not stored or has expired. So the
 * caller must read the row of the run after it has attached, and call `finish` if the run has ended.
 *
 * @throws STREAM_READER_TOO_SLOW if events were evicted before they were read and are not stored, STREAM_INCOMPLETE if
 *   events are lost.
 */
export interface StreamReader extends AsyncIterable<StreamedEvent> {
  /**
   * Returns the next event without waiting, to read events in batches. If it returns undefined, continue with the
   * iteration. Call it only between two steps of the iteration.
   */
  ready?(): StreamedEvent | undefined;
  /**
   * Call this method when no further event will be published: the reader ends after the events that are in the log now.
   * Resolves when they have arrived in this process; the iteration continues meanwhile.
   */
  finish(): Promise<void>;
  /** Ends the reader at its current position. */
  close(): void;
}

export interface StreamHub {
  /** Resolves when the reader is attached: it receives every event that is published afterwards. */
  readRun(
    run: { readonly deploymentId: string; readonly threadId: string; readonly runId: string },
    from: RunReadFrom,
  ): Promise<StreamReader>;
  readThread(
    thread: { readonly deploymentId: string; readonly threadId: string },
    from: ThreadReadFrom,
  ): Promise<StreamReader>;
  /** Ends all readers at their current positions. */
  close(): Promise<void>;
}

/**
 * Sequence numbers of events. The events of an attempt are numbered from 1. The end has the maximum number, because
 * another process may publish it without knowing the number of events. A thread numbers the attempts of its runs
 * (`threadStart`) from 1.
 */

const seqNumbersPerAttempt = 2 ** 32;
export const endSeq = seqNumbersPerAttempt - 1;

/**
 * Returns the sequence number in the thread. A double and the log represent it exactly for up to half a million starts
 * in a thread.
 */
export function toThreadSeq(threadStart: number, seq: number): number {
  return threadStart * seqNumbersPerAttempt + seq;
}

export function toStart(threadSeq: number): number {
  return Math.floor(threadSeq / seqNumbersPerAttempt);
}

export function toSeq(threadSeq: number): number {
  return threadSeq % seqNumbersPerAttempt;
}

/**
 * The stream mode of runs that a client started through the event-stream protocol. Their events that have no equivalent
 * in the older stream modes also have this mode. Readers of the older modes skip these events. Clients cannot request
 * this mode by name.
 */
export const protocolMode = 'v2';

/** Protocol method of the event that reports an interrupt, under {@link protocolMode}. */
export const interruptEvent = 'input.requested';
