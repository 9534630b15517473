/**
 * Appends batches to partitions of Kafka, each exactly where it belongs.
 *
 * Invariant: of a partition one batch at a time is under way, and it is not left before its outcome is known. So what is
 * appended later stands later in the log, and no copy of a batch turns up behind a later one.
 *
 *   1. A batch goes out under the producer's id and the next sequence number of its partition (an idempotent producer). The
 *      library counts the number back when a request fails, so the same batch goes out under the same number again.
 *   2. No answer, or one that may pass: the connections are broken where they were silent, and the same batch goes out again,
 *      for as long as it takes. A copy that a stalled broker finds in its buffers later has a number that was used: it is
 *      answered, not appended. (Were the batch given up instead, the next one would take its number, and be dropped as a repeat
 *      if the first had arrived after all.)
 *   3. The broker does not know our numbers any more (its state was lost, or the topic was made anew): once nothing else is
 *      under way, the producer is replaced by one with a new id, and the same batch goes out first. It may then stand twice in
 *      the log, next to each other, which merges.
 *   4. An attempt that does not even end is cut off with its client, whose sockets are destroyed so that it can send nothing
 *      later, and the producer is replaced as in 3.
 *   5. A batch that the broker refuses for what it is was not appended; its number is free, and its publishers are told.
 */
import { type Message, Partitioners, type Producer } from 'kafkajs';
import { fault } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { kindsOf } from './client-fault.ts';
import { type KafkaAddress, type KafkaClient, openKafkaClient } from './kafka-client.ts';
import { backoffMs, endsWithin, pause } from './pause.ts';

export interface Appending {
  readonly topic: string;
  readonly partition: number;
  readonly messages: readonly Message[];
}

interface Session {
  readonly client: KafkaClient;
  readonly producer: Producer;
  connected: Promise<void> | undefined;
  underWay: number;
}

type Outcome = 'appended' | 'refused' | 'unknown' | 'silent' | 'number lost' | 'hung';

const lostKinds = ['OUT_OF_ORDER_SEQUENCE_NUMBER', 'UNKNOWN_PRODUCER_ID', 'INVALID_PRODUCER_EPOCH'];
const refusedKinds = ['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE', 'INVALID_RECORD', 'INVALID_TIMESTAMP'];

export class Appender {
  readonly #address: KafkaAddress;
  readonly #requestTimeoutMs: number;
  readonly #logger: Logger;
  readonly #stop = new AbortController();
  #session: Session | undefined;
  #replacing: Promise<void> | undefined;
  #failingSince: number | undefined;

  constructor(address: KafkaAddress, requestTimeoutMs: number, logger: Logger) {
    this.#address = address;
    this.#requestTimeoutMs = requestTimeoutMs;
    this.#logger = logger;
  }

  /**
   * Resolves when the batch is in all in-sync replicas; tries until then, or until {@link Appender.close}.
   * To be called for one batch of a partition at a time.
   *
   * @throws TOPIC_UNFIT where the broker refuses the batch for its size or form, EVENT_LOG_UNAVAILABLE once closed.
   */
  async append(batch: Appending): Promise<void> {
    for (let attempt = 0; !this.#stop.signal.aborted; attempt++) {
      await this.#replacing;
      this.#session ??= this.#open();
      const session = this.#session;
      session.underWay++;
      const startedAtMs = performance.now();
      const { outcome, error } = await this.#attempt(session, batch);
      session.underWay--;
      switch (outcome) {
        case 'appended':
          this.#passed();
          return;
        case 'refused':
          throw fault(
            'TOPIC_UNFIT',
            {
              topic: batch.topic,
              property: 'largest message',
              found: kindsOf(error)[0] ?? '',
              needed: 'more',
              variable: 'RUNLAKE_MAX_RUN_BYTES',
            },
            { cause: error },
          );
        case 'number lost':
          await this.#replace(session, true);
          break;
        case 'hung':
          await this.#replace(session, false);
          break;
        case 'silent':
          // Not those that another partition's attempt has opened since for the same reason.
          session.client.breakConnections(startedAtMs);
          break;
        case 'unknown':
          break;
        default:
          outcome satisfies never;
      }
      this.#failed(batch, error);
      await pause(backoffMs(attempt, 50, 1_000), this.#stop.signal);
    }
    throw fault('EVENT_LOG_UNAVAILABLE', {}, { retryAfterSeconds: 2 });
  }

  /** Gives up what is under way; nothing leaves this process afterwards. */
  async close(): Promise<void> {
    this.#stop.abort();
    const session = this.#session;
    if (session === undefined) return;
    await endsWithin(session.producer.disconnect(), 1_000);
    session.client.fence();
  }

  async #attempt(session: Session, { topic, partition, messages }: Appending) {
    const sending = this.#connect(session).then(() =>
      session.producer.send({
        topic,
        acks: -1,
        timeout: this.#requestTimeoutMs,
        messages: messages.map((message) => ({ ...message, partition })),
      }),
    );
    let outcome: Outcome = 'hung';
    let error: unknown;
    try {
      // Connecting, metadata and request, each of them twice, with what it takes to reach several brokers.
      if (await endsWithin(sending, this.#requestTimeoutMs * 6 + 20_000)) {
        const answers = await sending;
        outcome = answers.some((answer) => answer.partition === partition) ? 'appended' : 'unknown';
      }
    } catch (caught) {
      error = caught;
      outcome = outcomeOf(caught);
    }
    sending.catch(() => undefined);
    return { outcome, error };
  }

  #open(): Session {
    const client = openKafkaClient(this.#address, this.#requestTimeoutMs, this.#logger);
    const producer = client.kafka.producer({
      idempotent: true,
      // The library queues requests above this on a connection; one a partition is our own doing.
      maxInFlightRequests: 5,
      allowAutoTopicCreation: false,
      createPartitioner: Partitioners.DefaultPartitioner,
      retry: { retries: 1, initialRetryTime: 50, maxRetryTime: 200 },
    });
    return { client, producer, connected: undefined, underWay: 0 };
  }

  /** The library sends without a producer id, and without a word, where it has not got one: so connecting comes first. */
  #connect(session: Session): Promise<void> {
    session.connected ??= session.producer.connect().catch((error: unknown) => {
      session.connected = undefined;
      throw error;
    });
    return session.connected;
  }

  /** Steps 3 and 4. */
  async #replace(old: Session, whenQuiet: boolean): Promise<void> {
    if (this.#session !== old) return this.#replacing;
    this.#session = undefined;
    this.#logger.warn({ whenQuiet }, 'the Kafka producer is replaced by one with a new id');
    this.#replacing = (async () => {
      while (whenQuiet && old.underWay > 0 && !this.#stop.signal.aborted) await pause(10);
      old.client.fence();
      this.#replacing = undefined;
    })();
    await this.#replacing;
  }

  #failed({ topic, partition }: Appending, error: unknown): void {
    if (this.#failingSince !== undefined) return;
    this.#failingSince = performance.now();
    this.#logger.warn({ err: error, topic, partition }, 'Kafka does not take events now: tried again until it does');
  }

  #passed(): void {
    if (this.#failingSince === undefined) return;
    const forMs = Math.round(performance.now() - this.#failingSince);
    this.#failingSince = undefined;
    this.#logger.warn({ forMs }, 'Kafka takes events again');
  }
}

function outcomeOf(error: unknown): Outcome {
  const kinds = kindsOf(error);
  const among = (list: readonly string[]) => kinds.some((kind) => list.includes(kind));
  if (among(['DUPLICATE_SEQUENCE_NUMBER'])) return 'appended';
  if (among(lostKinds)) return 'number lost';
  if (among(refusedKinds)) return 'refused';
  return among(['KafkaJSRequestTimeoutError', 'KafkaJSLockTimeout']) ? 'silent' : 'unknown';
}
