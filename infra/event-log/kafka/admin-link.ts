import type { Admin } from 'kafkajs';
import { isRunlakeError, type RunlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { settlesBeforeTimeout } from '../../timeouts/with-timeout.ts';
import { kafkaError } from './client-error.ts';
import { type KafkaAddress, type KafkaClient, openKafkaClient } from './kafka-client.ts';

const requestTimeoutMs = 5_000;
const callTimeoutMs = 15_000;

/** Runs admin requests on one shared client. After a failure the next call opens a new client. */
export class AdminLink {
  readonly #address: KafkaAddress;
  readonly #logger: Logger;
  #link: { readonly client: KafkaClient; readonly admin: Promise<Admin> } | undefined;
  #closed = false;

  constructor(address: KafkaAddress, logger: Logger) {
    this.#address = address;
    this.#logger = logger;
  }

  /** @throws KAFKA_UNAVAILABLE, ACCESS_DENIED_BY_STORE, and the catalogue errors that `work` throws. */
  async call<Answer>(work: (admin: Admin) => Promise<Answer>): Promise<Answer> {
    this.#link ??= this.#open();
    const link = this.#link;
    const answer = link.admin.then(work);
    try {
      if (!(await settlesBeforeTimeout(answer, callTimeoutMs))) throw this.#timedOut();
      return await answer;
    } catch (error) {
      answer.catch(() => undefined);
      if (isRunlakeError(error) && error.code !== 'KAFKA_UNAVAILABLE') throw error;
      link.client.fence();
      if (this.#link === link) this.#link = undefined;
      throw kafkaError(error, this.#address.kafkaBrokers);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    const link = this.#link;
    this.#link = undefined;
    if (link === undefined) return;
    await settlesBeforeTimeout(
      link.admin.then((admin) => admin.disconnect()),
      1_000,
    );
    link.client.fence();
  }

  #open() {
    const client = openKafkaClient(this.#address, requestTimeoutMs, this.#logger);
    if (this.#closed) client.fence();
    const admin = client.kafka.admin();
    const connected = admin.connect().then(() => admin);
    connected.catch(() => undefined);
    return { client, admin: connected };
  }

  #timedOut(): RunlakeError {
    return kafkaError({ message: `no answer within ${callTimeoutMs} ms` }, this.#address.kafkaBrokers);
  }
}
