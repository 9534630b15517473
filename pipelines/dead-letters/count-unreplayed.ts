import type { DeadLetters } from '../../infra/event-log/dead-letters.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Topic } from '../../schemas/topics.ts';
import { countReplays } from './dead-letter-replays.ts';

/** Number of dead-letter records of each topic that were not replayed. @throws what the log and Postgres throw. */
export async function countUnreplayed(
  {
    deadLetters,
    database,
  }: { readonly deadLetters: Pick<DeadLetters, 'count'>; readonly database: Pick<Database, 'query'> },
  topics: readonly Topic[],
): Promise<{ labels: { topic: string }; value: number }[]> {
  const replays = await countReplays(database);
  return Promise.all(
    topics.map(async (topic) => ({
      labels: { topic: topic.name },
      // The log may have deleted a record after its replay.
      value: Math.max(0, (await deadLetters.count(topic)) - (replays.get(topic.name) ?? 0)),
    })),
  );
}
