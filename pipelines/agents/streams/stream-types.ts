/** Interfaces for publishing the events of runs and for reading them, from any process. */
import { type StreamEvent, seqNumbersPerStart } from '../../streams/stream-event.ts';
import type { RunKwargs, RunStatus } from '../runs/run.ts';
import type { Interrupt } from '../threads/thread.ts';
import type { Chunk } from '../workers/messages.ts';

export interface RunStreamStart extends Pick<StreamEvent, 'deploymentId' | 'threadId' | 'runId' | 'attempt'> {
  /**
   * Number of this start, counted in the thread (column `starts`). The thread sequence numbers of the attempt begin at
   * this number times 2^32. Is 0 for temporary runs, whose threads have no readers.
   */
  readonly threadStart: number;
  /** Whether events are stored so that clients can resume the stream (`stream_resumable`). */
  readonly kept: boolean;
}

/** Returns the start to which the events of an attempt belong. */
export function toStreamStart({
  kwargs,
  threadStart,
  ...run
}: Omit<RunStreamStart, 'kept'> & {
  readonly kwargs: Pick<RunKwargs, 'temporary' | 'resumable'>;
}): RunStreamStart {
  const { deploymentId, threadId, runId, attempt } = run;
  return {
    deploymentId,
    threadId,
    runId,
    attempt,
    threadStart: kwargs.temporary ? 0 : threadStart,
    kept: kwargs.resumable,
  };
}

/** Writes the events of one attempt and numbers them from 1. */
export interface RunStreamWriter {
  /** Resolves when the writer accepts more chunks. {@link RunStreamWriter.settled} reports publish errors. */
  write(chunks: readonly Chunk[]): Promise<void>;
  /**
   * Resolves when the log has accepted all events and, if the stream is resumable, has made them durable.
   *
   * @throws errors of the log.
   */
  settled(): Promise<void>;
}

export interface RunStreamEnd {
  /**
   * The {@link RunEnd} as JSON text, which is the data of the event with `isEnd`. Requests that wait for the run return
   * this text without a database query.
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
  /** Error of the failed run, as clients see it. */
  readonly error?: { readonly error: string; readonly message: string };
  /**
   * Error of the failed run if no event reported it, because the process that executed the run had died. `feedback` is
   * omitted in this case.
   */
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

/** An event in the form that readers receive. */
export type StreamedEvent = Omit<StreamEvent, 'deploymentId' | 'threadId' | 'kept' | 'expiresAtMicros'>;

/**
 * Position at which a reader starts. `start`: at the oldest event that is stored or in the ring buffer of this process.
 * `now`: at the first event that arrives after the reader has attached. An object: directly after the event with these
 * sequence numbers. `openStarts`: starts before it whose end event was not read, and is read when it arrives.
 */
export type RunReadStart = 'start' | 'now' | { readonly attempt: number; readonly seq: number };
export type ThreadReadStart = 'start' | 'now' | { readonly threadSeq: number; readonly openStarts?: Iterable<number> };

/**
 * An attached reader. It can be iterated only once. A reader of a run yields the end event and then ends; a reader of a
 * thread never ends by itself. A reader of a thread also yields the end events of its runs, except for runs that were
 * never started; an end event may arrive after the first events of the next run.
 *
 * If a reader attaches after the end event was published, and that event is not stored or has expired, the reader would
 * wait forever. Therefore the caller must read the row of the run after the reader has attached, and call `finish` if
 * the run has ended.
 *
 * @throws STREAM_READER_TOO_SLOW if events were evicted before they were read and are not stored, STREAM_INCOMPLETE if
 *   events are lost.
 */
export interface StreamReader extends AsyncIterable<StreamedEvent> {
  /**
   * Returns the next event if it is available without waiting, so that callers can read events in batches. If it
   * returns undefined, continue with the iteration. Call it only between two steps of the iteration.
   */
  ready?(): StreamedEvent | undefined;
  /**
   * Tells the reader that no further event will be published, so that it ends after the events that are in the log now;
   * with STREAM_INCOMPLETE, if these do not arrive in time.
   * Resolves when these events have arrived in this process; the iteration continues meanwhile.
   */
  finish(): Promise<void>;
  /** Ends the reader at its current position. */
  close(): void;
}

export interface StreamHub {
  /** Attaches a reader. Resolves when it is attached; the reader receives every event that is published afterwards. */
  readRun(
    run: { readonly deploymentId: string; readonly threadId: string; readonly runId: string },
    from: RunReadStart,
  ): Promise<StreamReader>;
  readThread(
    thread: {
      readonly deploymentId: string;
      readonly threadId: string;
      /** Number of starts of deleted threads with the same id, whose events are skipped. Default: 0. */
      readonly earlierStarts?: number;
    },
    from: ThreadReadStart,
  ): Promise<StreamReader>;
  /**
   * Lists the starts of a thread before an event whose ends follow the event in the log. Knows only events that are in
   * the ring buffer.
   */
  listOpenStarts(
    thread: { readonly deploymentId: string; readonly threadId: string },
    threadSeq: number,
  ): readonly number[];
  /** Ends all readers at their current positions. */
  close(): Promise<void>;
}

/**
 * Sequence numbers of events. The events of an attempt are numbered from 1. The end event has the maximum number,
 * because another process may publish it without knowing how many events there are. The attempts of all runs of a
 * thread are numbered together from 1 (`threadStart`).
 */

export const endSeq = seqNumbersPerStart - 1;

/**
 * Converts the sequence number of an event in its attempt to its sequence number in the thread. The result is exact, as
 * a double and in the log, for up to half a million starts in a thread.
 */
export function toThreadSeq(threadStart: number, seq: number): number {
  return threadStart * seqNumbersPerStart + seq;
}

export function toThreadStart(threadSeq: number): number {
  return Math.floor(threadSeq / seqNumbersPerStart);
}

export function toSeq(threadSeq: number): number {
  return threadSeq % seqNumbersPerStart;
}

/**
 * The stream mode of runs that a client started through the event-stream protocol. Events of these runs that have no
 * equivalent in the older stream modes also have this mode, and readers of the older modes skip them. Clients cannot
 * request this mode by name.
 */
export const protocolMode = 'v2';

/**
 * The mode of the event `error` that replaces the last values of a run. Only readers that request the mode `values`
 * receive it. Clients cannot request this mode by name.
 */
export const missingValuesMode = 'missing_values';

/**
 * The mode and name of the event that tells readers that a part of the request has no effect or that an event is
 * missing. Readers receive it in every mode. Clients cannot request this mode by name.
 */
export const warningMode = 'warning';

/** Creates an event of {@link warningMode}. `error` names the reason for a missing event. */
export function createWarningChunk(message: string, error?: string): Chunk {
  const data = Buffer.from(JSON.stringify({ error, message }));
  return { mode: warningMode, event: warningMode, namespace: '', data };
}

/** Protocol method of the event that reports an interrupt in mode {@link protocolMode}. */
export const interruptEvent = 'input.requested';

/**
 * Event of the protocol that lists the interrupts which a run answers by id, so that all clients of the thread stop to
 * offer them. Source: `@langchain/protocol` 0.0.21, InputAnsweredEvent.
 */
export const answerEvent = 'input.answered';
