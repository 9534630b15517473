import type { Admin } from 'kafkajs';
import { isRunlakeError, type RunlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { kafkaFault } from './client-fault.ts';
import { type KafkaAddress, type KafkaClient, openKafkaClient } from './kafka-client.ts';
import { endsWithin } from './pause.ts';

const requestTimeoutMs = 5_000;
const callTimeoutMs = 15_000;

/** Questions to the cluster as a whole. One connected client serves all; where it fails, the next question opens another. */
export class AdminLink {
  readonly #address: KafkaAddress;
  readonly #logger: Logger;
  #link: { readonly client: KafkaClient; readonly admin: Promise<Admin> } | undefined;
  #closed = false;

  constructor(address: KafkaAddress, logger: Logger) {
    this.#address = address;
    this.#logger = logger;
  }

  /** @throws KAFKA_UNAVAILABLE, ACCESS_DENIED_BY_STORE, and the catalogue's errors that `ask` throws. */
  async ask<Answer>(ask: (admin: Admin) => Promise<Answer>): Promise<Answer> {
    this.#link ??= this.#open();
    const link = this.#link;
    const answer = link.admin.then(ask);
    try {
      if (!(await endsWithin(answer, callTimeoutMs))) throw this.#silent();
      return await answer;
    } catch (error) {
      answer.catch(() => undefined);
      if (isRunlakeError(error) && error.code !== 'KAFKA_UNAVAILABLE') throw error;
      link.client.fence();
      if (this.#link === link) this.#link = undefined;
      throw kafkaFault(error, this.#address.kafkaBrokers);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    const link = this.#link;
    this.#link = undefined;
    if (link === undefined) return;
    await endsWithin(
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

  #silent(): RunlakeError {
    return kafkaFault({ message: `no answer within ${callTimeoutMs} ms` }, this.#address.kafkaBrokers);
  }
}
