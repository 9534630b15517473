/** How runs stream and how readers follow them, in whichever process either is. */
import type { StreamEvent } from '../../streams/stream-event.ts';
import type { RunStatus } from '../runs/run.ts';
import type { Interrupt } from '../threads/thread.ts';
import type { Chunk } from '../workers/worker-pool.ts';

export interface RunStreamStart {
  readonly deploymentId: string;
  readonly threadId: string;
  readonly runId: string;
  readonly attempt: number;
  /** `starts` of the thread: events are numbered from here times 2^32. */
  readonly threadStart: number;
  /** Stored for readers that come back: `stream_resumable`. */
  readonly kept: boolean;
}

/** Writes the events of one attempt. Numbers them from 1. */
export interface RunStreamWriter {
  /** Resolves when the log has room for more; a failure to publish surfaces at {@link RunStreamWriter.settled}. */
  write(chunks: readonly Chunk[]): Promise<void>;
  /** Resolves when all that was written is durable where it is kept, else when the log has it. @throws what the log throws. */
  settled(): Promise<void>;
}

export interface RunStreamEnd {
  /**
   * JSON text of {@link RunEnd}: what those who wait for the run answer, without asking the database. It is the data of the
   * event that has `isEnd`.
   */
  readonly data: Uint8Array;
  /** When the run ended, in microseconds since 1970. */
  readonly endedAtMicros: number;
}

/** What the end of a run says. */
export interface RunEnd {
  /** The log did not take all events of the attempt: there is a hole before the end. */
  readonly events_missing?: boolean;
  readonly status: RunStatus;
  readonly graph_id?: string;
  /** Whether the graph waits, for an answer or to go on. */
  readonly interrupted?: boolean;
  /** What it waits for, by task; left out if they are large, and then read from `agents.final_values`. */
  readonly interrupts?: Readonly<Record<string, readonly Interrupt[]>>;
  /** Of a run that failed: what a client is told. */
  readonly error?: { readonly error: string; readonly message: string };
  /** The same where no event told of it, because no process was left to do so; there is no feedback then. */
  readonly unsaid?: { readonly error: string; readonly message: string };
  /** Links under which feedback can be left on the run, by key; where it asked for that. */
  readonly feedback?: Readonly<Record<string, string>> | undefined;
  /** The state at the end; left out if it is large, and then read from `agents.final_values`. */
  readonly values?: unknown;
}

export interface StreamPublisher {
  open(start: RunStreamStart): RunStreamWriter;
  /**
   * Publishes that nothing of the run follows; its final state is committed. Repeating it is harmless, from any process: the end
   * stands after every event of its attempt, and a repeat is the same in every field. @throws what the log throws.
   */
  publishEnd(end: RunStreamStart & RunStreamEnd): Promise<void>;
}

/** One event as a reader gets it. */
export type StreamedEvent = Omit<StreamEvent, 'deploymentId' | 'threadId' | 'kept' | 'expiresAtMicros'>;

/**
 * Where a reader goes on: `start` with what is kept and what this process still has of the rest; `now` with what reaches this
 * process after it has attached; or behind an event.
 */
export type RunReadFrom = 'start' | 'now' | { readonly attempt: number; readonly seq: number };
export type ThreadReadFrom = 'start' | 'now' | { readonly threadSeq: number };

/**
 * A reader that is attached. Iterate once. Ends after the end of the run, which it gives too (readers of a thread: never by
 * themselves). Readers of a thread get ends as well, save those of runs that were never started; an end may come after the first
 * events of the next run.
 *
 * A reader that attached after the end was published would wait for ever where that end is not kept, or not any more. So whoever
 * attaches looks at the row of the run once, afterwards: has it ended, the reader is told to `finish`.
 *
 * @throws STREAM_READER_TOO_SLOW where what it did not take in time is nowhere any more, STREAM_INCOMPLETE where events are
 *   missing for good.
 */
export interface StreamReader extends AsyncIterable<StreamedEvent> {
  /**
   * What the iteration would give next, where that is there already: to be asked between two of its steps, by those who take many
   * events at a time. `undefined`: ask the iteration.
   */
  ready?(): StreamedEvent | undefined;
  /**
   * Says that nothing more is published than what is in the log now: the reader ends after that. Resolves when it knows where
   * that is; the iteration goes on meanwhile.
   */
  finish(): Promise<void>;
  /** Ends it where it stands. */
  close(): void;
}

export interface StreamHub {
  /** Resolves when it is attached: every event published from then on reaches the reader. */
  readRun(
    run: { readonly deploymentId: string; readonly threadId: string; readonly runId: string },
    from: RunReadFrom,
  ): Promise<StreamReader>;
  readThread(
    thread: { readonly deploymentId: string; readonly threadId: string },
    from: ThreadReadFrom,
  ): Promise<StreamReader>;
  /** Ends all readers where they stand. */
  close(): Promise<void>;
}
