/**
 * The port of the dead-letter queue: records that could not be stored, written by {@link EventLog.deadLetter} with
 * their original bytes and headers. Adapters: a table in Postgres (`in-process/`) and Kafka's dead-letter topics
 * (`kafka/`). One contract suite, `test/contract/dead-letters`, runs against each.
 */
import type { Topic } from '../../schemas/topics.ts';

/** What a list shows of a dead-letter record. */
export interface DeadLetterHead {
  /** Id of the dead-letter record: `<topic>/…`. */
  readonly id: string;
  /** Topic that the event was published to; partition and offset refer to it. */
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly key: string;
  readonly sizeBytes: number;
  readonly reason: string;
  /** Step that refused the event: `framing`, `schema`, `walk`, `key`, `insert` or `defer`. */
  readonly step: string;
  /** Time at which it was written to the queue, in milliseconds since 1970. */
  readonly deadAtMs: number;
}

export interface DeadLetter extends DeadLetterHead {
  /** The original bytes of the event. */
  readonly value: Buffer;
  /** The original headers. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface DeadLetterFilter {
  readonly topics: readonly Topic[];
  readonly step?: string | undefined;
  /** Only records written to the queue at this time or later, in milliseconds since 1970. */
  readonly sinceMs?: number | undefined;
  /** Only records written to the queue at this time or earlier, in milliseconds since 1970. */
  readonly untilMs?: number | undefined;
}

export interface DeadLetters {
  /** The newest matching records, newest first. Does not read values if the store can omit them. */
  list(filter: DeadLetterFilter, limit: number): Promise<DeadLetterHead[]>;
  /** Number of records of the topic, replayed ones included; counts at most {@link maxCounted}. */
  count(topic: Topic): Promise<number>;
  /** `undefined` if no record has that id, or no longer. */
  find(id: string): Promise<DeadLetter | undefined>;
  close(): Promise<void>;
}

/** Keeps counting cheap. */
export const maxCounted = 100_000;
