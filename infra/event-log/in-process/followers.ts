import type { Topic } from '../../../schemas/topics.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { LogRecord } from '../event-log.ts';

type OnRecords = (records: readonly LogRecord[]) => void;

/** Followers of the topics of the in-process log. */
export class Followers {
  readonly #logger: Logger;
  readonly #byTopic = new Map<string, Set<OnRecords>>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** @returns a function that removes the follower. */
  add(topic: Topic, onRecords: OnRecords): () => void {
    // Wrapped, so that the same function can be added twice.
    const follower: OnRecords = (records) => onRecords(records);
    const followers = this.#byTopic.get(topic.name) ?? new Set();
    this.#byTopic.set(topic.name, followers.add(follower));
    return () => void followers.delete(follower);
  }

  /** Passes records to all followers of `topic`. Logs what a follower throws. */
  publish(topic: Topic, records: readonly LogRecord[]): void {
    for (const follower of this.#byTopic.get(topic.name) ?? []) {
      try {
        follower(records);
      } catch (error) {
        this.#logger.error({ err: error, topic: topic.name }, 'a follower of the event log failed on records');
      }
    }
  }

  clear(): void {
    for (const followers of this.#byTopic.values()) followers.clear();
  }
}
