import type { Topic } from '../../../schemas/topics.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { LogRecord } from '../event-log.ts';

type Take = (records: readonly LogRecord[]) => void;

/** Those who read topics of the in-process log as they are published. */
export class Tails {
  readonly #logger: Logger;
  readonly #byTopic = new Map<string, Set<Take>>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** @returns ends that. */
  add(topic: Topic, take: Take): () => void {
    const own: Take = (records) => take(records);
    const takers = this.#byTopic.get(topic.name) ?? new Set();
    this.#byTopic.set(topic.name, takers.add(own));
    return () => void takers.delete(own);
  }

  hand(topic: Topic, records: readonly LogRecord[]): void {
    for (const take of this.#byTopic.get(topic.name) ?? []) {
      try {
        take(records);
      } catch (error) {
        this.#logger.error({ err: error, topic: topic.name }, 'a tail of the event log failed on records');
      }
    }
  }

  clear(): void {
    for (const takers of this.#byTopic.values()) takers.clear();
  }
}
