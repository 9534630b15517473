/**
 * The port of the event log: an ordered, durable hand-over from those who accept events to those who store them.
 * Adapters: in-process (`in-process/`) and Kafka. One contract suite, `test/contract/event-log`, runs against each.
 */
import type { Topic } from '../../schemas/topics.ts';
import type { Sql } from '../postgres/pool.ts';

/** One event to publish. Events of one key keep their order and meet one consumer. */
export interface LogMessage {
  readonly key: string;
  /** Confluent's wire format, see `wire-format.ts`. */
  readonly value: Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

/** One event as a consumer sees it. Its value may be written over by the consumer. */
export interface LogRecord {
  readonly partition: number;
  readonly offset: number;
  readonly key: string;
  readonly value: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

/** What an insert is about to do. */
export interface Cut {
  /** Names the insert: table, topic, partition, first and last offset, schema id and a digest of the body. */
  readonly token: string;
  /** Hours of usage that it touches. */
  readonly hours: readonly TouchedHour[];
}

export interface TouchedHour {
  readonly tenantId: string;
  /** Seconds since 1970, a whole hour. */
  readonly hourSeconds: number;
}

/** Consecutive records of one partition of one topic, in the order of the log. */
export interface LogBatch {
  readonly topic: Topic;
  readonly partition: number;
  readonly records: readonly LogRecord[];
  /**
   * Present where older events are stored anew, in order. Belongs into the token of every cut of the batch, so that none is
   * taken for a repeat of what was stored at another time.
   */
  readonly tokenSalt?: string;
  /**
   * Writes `cut` down before its insert, so that after a crash it is replayed whole or known to have been under way.
   * Resolves when that is durable.
   */
  writeDownCut(cut: Cut): Promise<void>;
}

/** A place in a topic: offsets by partition, where the log has such. */
export type LogPosition = Readonly<Record<string, number>>;

/** The group of consumers that stores a topic. */
export const storingGroup = (topic: Topic) => `sink-${topic.table}`;

export interface Subscription {
  readonly topic: Topic;
  /** The batch is acknowledged to its publishers and committed when every group has handled it. */
  readonly group: string;
  /** Bounds of a batch; one event above them still comes, alone. */
  readonly limits: { readonly rows: number; readonly bytes: number };
  /**
   * A partition comes to this process now, before its first batch does: what another process stored of its earlier events may
   * be newer than what this one remembers.
   */
  assigned?(partition: number): void;
  /**
   * Resolves when everything of the batch is durable.
   * A rejection leaves the batch uncommitted: its publishers hear of it, or it comes again.
   */
  handle(batch: LogBatch): Promise<void>;
}

/** A reader of a topic that stores nothing: for those who pass events on as they come. */
export interface TailOptions {
  /** How far back to begin, where the log keeps what was published: the in-process log does not. Default: now. */
  readonly sinceMs?: number;
  /**
   * Gets the records of a partition in the order of the log, as soon as they have their place, which may be before they are
   * durable; after an outage some may come again. It has to be done when it returns: nothing is kept for it, so that no tail
   * can hold publishers up or make memory grow. What it throws is logged, and the next records come.
   */
  onRecords(records: readonly LogRecord[]): void;
}

export interface Tail {
  /** Where it began, by partition; those that are added later are read from their beginning. */
  readonly from: LogPosition;
  /** Whether everything before `position` was handed over. */
  passed(position: LogPosition): boolean;
  /** Resolves when nothing more is handed over. */
  close(): Promise<void>;
}

export interface EventLog {
  /** Schema ids under which records of each topic are written, by topic name. */
  schemaId(topic: Topic): number;
  /** The schema behind an id, as JSON text; `undefined` where nobody knows it. */
  schemaOf(schemaId: number): Promise<string | undefined>;
  /**
   * Resolves when the whole batch is durable. Messages of a topic with `storedIf` that are not to be stored need not be: they
   * are for tails alone, and may come to no group.
   * @param onPlaced is called, at the latest before it resolves, when the batch has its place: what is published from then on
   *   stands behind it, also where this one fails after all. Not called where it fails before.
   * @throws OVERLOADED where too much is waiting, EVENT_LOG_UNAVAILABLE where it cannot be made durable now,
   *   DRAINING after {@link EventLog.close} was called.
   */
  publish(topic: Topic, messages: readonly LogMessage[], onPlaced?: () => void): Promise<void>;
  subscribe(subscription: Subscription): Promise<void>;
  /**
   * Begins to read `topic` beside its groups. Resolves when what was in the log at the call was handed over: what is published
   * later will be, over outages of the log too.
   * @throws what the log throws where it cannot be read now, DRAINING after {@link EventLog.close} was called.
   */
  tail(topic: Topic, options: TailOptions): Promise<Tail>;
  /**
   * Puts an event that cannot be stored aside, with its original bytes and headers. Resolves when that is durable.
   * A transaction that is given takes part where the letters lie in the same database; else the letter is durable before the
   * transaction can be committed, so that a repeat after a crash may leave a second letter of the same topic, partition and
   * offset. Readers take the two for one.
   */
  deadLetter(topic: Topic, record: LogRecord, reason: string, step: string, transaction?: Sql): Promise<void>;
  /**
   * Cuts that were written down and not followed by {@link EventLog.finishCut}: their inserts may have happened.
   * Empty where such records come again.
   */
  unfinishedCuts(): Promise<Cut[]>;
  /** Forgets a cut that was written down, inside the transaction that notes its hours. */
  finishCut(cut: Cut, transaction: Sql): Promise<void>;
  /**
   * Where the topic ends now, as JSON that only {@link EventLog.stored} reads: behind everything that was published before.
   * @throws where the log cannot be asked.
   */
  position(topic: Topic): Promise<LogPosition>;
  /**
   * Whether the consumers that store the topic are done with everything before `position`, be it one of
   * {@link EventLog.position} or made of offsets of records. Also where they run elsewhere.
   * @throws where the log cannot be asked.
   */
  stored(topic: Topic, position: LogPosition): Promise<boolean>;
  /** @throws where the log cannot take events now. */
  check(): Promise<void>;
  /** Finishes what was accepted, then ends. */
  close(): Promise<void>;
}
