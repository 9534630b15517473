/**
 * The port of the dead letters: events that could not be stored, put aside by {@link EventLog.deadLetter} with their original
 * bytes and headers. Adapters: a table in Postgres (`in-process/`) and Kafka's dead-letter topics (`kafka/`).
 * One contract suite, `test/contract/dead-letters`, runs against each.
 */
import type { Topic } from '../../schemas/topics.ts';

/** What a list shows of a letter. */
export interface DeadLetterHead {
  /** Names the letter: `<topic>/…`. */
  readonly id: string;
  /** The topic for which the event was meant. */
  readonly topic: string;
  /** Where it stood there. */
  readonly partition: number;
  readonly offset: number;
  readonly key: string;
  readonly sizeBytes: number;
  readonly reason: string;
  /** Where on the path it was refused: `inspect`, `insert`, `park`, … */
  readonly step: string;
  /** When it was put aside, in milliseconds since 1970. */
  readonly deadAtMs: number;
}

export interface DeadLetter extends DeadLetterHead {
  /** The original bytes. */
  readonly value: Buffer;
  /** The original headers. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface LetterFilter {
  readonly topics: readonly Topic[];
  readonly step?: string | undefined;
  /** Put aside then or later. */
  readonly sinceMs?: number | undefined;
  /** Put aside then or earlier. */
  readonly untilMs?: number | undefined;
}

export interface DeadLetters {
  /** The newest that fit, newest first. Values are not read where the store can leave them out. */
  list(filter: LetterFilter, limit: number): Promise<DeadLetterHead[]>;
  /** How many of the topic there are, also those that were replayed; no more than {@link mostCounted} are counted. */
  count(topic: Topic): Promise<number>;
  /** `undefined` where there is none of that id, or no longer. */
  find(id: string): Promise<DeadLetter | undefined>;
  close(): Promise<void>;
}

/** So that counting stays cheap. */
export const mostCounted = 100_000;
