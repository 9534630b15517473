/**
 * Appends batches to partitions of Kafka, in order.
 *
 * Invariant: each partition has at most one batch in flight, and `append` keeps the batch until its outcome is known. A
 * later batch therefore has later offsets, and no copy of a batch appears after a later batch.
 *
 *   1. The idempotent producer sends a batch under its producer id and the next sequence number of the partition. When
 *      a request fails, the library restores the sequence number, so the retry uses the same number.
 *   2. After a timeout or a transient error, `append` breaks the connections that timed out and sends the same batch
 *      again, until it succeeds. A stalled broker that later processes the first copy finds a used sequence number:
 *      it acknowledges the copy without appending it. (Giving up is unsafe: the next batch would reuse the sequence
 *      number, and the broker would discard it as a duplicate if the first batch had been appended.)
 *   3. If the broker no longer has the producer's state (it was lost, or the topic was recreated), `append` waits
 *      until no other batch is in flight, replaces the library's producer by one with a new id, and sends the same
 *      batch first. The log may then contain the batch twice in a row, which is harmless, because repeated events
 *      merge.
 *   4. If an attempt does not settle, `append` fences the client: it destroys the sockets, so that the client sends
 *      nothing later, and replaces the producer as in step 3.
 *   5. A batch that the broker rejects for its content was not appended. Its sequence number is free, and its
 *      publishers get the error.
 */
import { type Message, Partitioners, type Producer } from 'kafkajs';
import { runlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { computeBackoffMs, pause } from '../../timeouts/backoff.ts';
import { settlesBeforeTimeout } from '../../timeouts/with-timeout.ts';
import { hasErrorName, type KafkaAddress, type KafkaClient, listErrorNames, openKafkaClient } from './client.ts';

export interface PartitionBatch {
  readonly topic: string;
  readonly partition: number;
  readonly messages: readonly Message[];
}

interface Session {
  readonly client: KafkaClient;
  readonly producer: Producer;
  connected: Promise<void> | undefined;
  inFlight: number;
}

type Outcome = 'appended' | 'refused' | 'unknown' | 'silent' | 'number lost' | 'hung';

const lostStateErrorNames = ['OUT_OF_ORDER_SEQUENCE_NUMBER', 'UNKNOWN_PRODUCER_ID', 'INVALID_PRODUCER_EPOCH'];
const refusedBatchErrorNames = ['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE', 'INVALID_RECORD', 'INVALID_TIMESTAMP'];

export class IdempotentProducer {
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
   * Resolves when the batch is in all in-sync replicas; retries until then or until {@link IdempotentProducer.close}.
   * Call it for one batch per partition at a time.
   *
   * @throws TOPIC_UNUSABLE if the broker rejects the size or the format of the batch, EVENT_LOG_UNAVAILABLE after
   * closing.
   */
  async append(batch: PartitionBatch): Promise<void> {
    for (let attempt = 0; !this.#stop.signal.aborted; attempt++) {
      await this.#replacing;
      this.#session ??= this.#open();
      const session = this.#session;
      session.inFlight++;
      const startedAtMs = performance.now();
      const { outcome, error } = await this.#attempt(session, batch);
      session.inFlight--;
      switch (outcome) {
        case 'appended':
          this.#recordSuccess();
          return;
        case 'refused':
          throw runlakeError(
            'TOPIC_UNUSABLE',
            {
              topic: batch.topic,
              property: 'largest message',
              found: listErrorNames(error)[0] ?? '',
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
          // Keep the connections that another partition's attempt has reopened meanwhile.
          session.client.breakConnections(startedAtMs);
          break;
        case 'unknown':
          break;
        default:
          outcome satisfies never;
      }
      this.#recordFailure(batch, error);
      await pause(computeBackoffMs(attempt, 50, 1_000), this.#stop.signal);
    }
    throw runlakeError('EVENT_LOG_UNAVAILABLE', {}, { retryAfterSeconds: 2 });
  }

  /** Abandons the batches in flight. This process sends nothing to Kafka afterwards. */
  async close(): Promise<void> {
    this.#stop.abort();
    const session = this.#session;
    if (session === undefined) return;
    await settlesBeforeTimeout(session.producer.disconnect(), 1_000);
    session.client.fence();
  }

  async #attempt(session: Session, { topic, partition, messages }: PartitionBatch) {
    const sending = this.#connect(session).then(() =>
      session.producer.send({
        topic,
        acks: -1,
        timeout: this.#requestTimeoutMs,
        messages: messages.map(({ key, value, headers = {} }) => ({ key: key ?? null, value, headers, partition })),
      }),
    );
    let outcome: Outcome = 'hung';
    let error: unknown;
    try {
      // The timeout covers connecting, fetching metadata and the request, each attempted twice, plus time to try
      // several brokers.
      if (await settlesBeforeTimeout(sending, this.#requestTimeoutMs * 6 + 20_000)) {
        const results = await sending;
        outcome = results.some((answer) => answer.partition === partition) ? 'appended' : 'unknown';
      }
    } catch (sendError) {
      error = sendError;
      outcome = classifyError(sendError);
    }
    sending.catch(() => undefined);
    return { outcome, error };
  }

  #open(): Session {
    const client = openKafkaClient(this.#address, this.#requestTimeoutMs, this.#logger);
    const producer = client.kafka.producer({
      idempotent: true,
      // Limit per connection; the library queues further requests. Each partition queue has at most one in flight.
      maxInFlightRequests: 5,
      allowAutoTopicCreation: false,
      createPartitioner: Partitioners.DefaultPartitioner,
      retry: { retries: 1, initialRetryTime: 50, maxRetryTime: 200 },
    });
    return { client, producer, connected: undefined, inFlight: 0 };
  }

  /** Connects before the first send: without a producer id the library silently sends non-idempotent batches. */
  #connect(session: Session): Promise<void> {
    session.connected ??= session.producer.connect().catch((error: unknown) => {
      session.connected = undefined;
      throw error;
    });
    return session.connected;
  }

  /**
   * Steps 3 and 4 of the header comment: replaces the producer. With `waitForInFlight`, waits until no other batch is in
   * flight.
   */
  async #replace(old: Session, waitForInFlight: boolean): Promise<void> {
    if (this.#session !== old) return this.#replacing;
    this.#session = undefined;
    this.#logger.warn({ whenQuiet: waitForInFlight }, 'replacing the Kafka producer with one that has a new id');
    this.#replacing = (async () => {
      while (waitForInFlight && old.inFlight > 0 && !this.#stop.signal.aborted) await pause(10);
      old.client.fence();
      this.#replacing = undefined;
    })();
    await this.#replacing;
  }

  #recordFailure({ topic, partition }: PartitionBatch, error: unknown): void {
    if (this.#failingSince !== undefined) return;
    this.#failingSince = performance.now();
    this.#logger.warn({ err: error, topic, partition }, 'Kafka does not accept events: retrying until it does');
  }

  #recordSuccess(): void {
    if (this.#failingSince === undefined) return;
    const failedForMs = Math.round(performance.now() - this.#failingSince);
    this.#failingSince = undefined;
    this.#logger.warn({ forMs: failedForMs }, 'Kafka accepts events again');
  }
}

function classifyError(error: unknown): Outcome {
  if (hasErrorName(error, ['DUPLICATE_SEQUENCE_NUMBER'])) return 'appended';
  if (hasErrorName(error, lostStateErrorNames)) return 'number lost';
  if (hasErrorName(error, refusedBatchErrorNames)) return 'refused';
  return hasErrorName(error, ['KafkaJSRequestTimeoutError', 'KafkaJSLockTimeout']) ? 'silent' : 'unknown';
}
