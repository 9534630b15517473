import type { DeadLetters } from '../../infra/event-log/dead-letters.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Topic } from '../../schemas/topics.ts';
import { countReplays } from './letter-replays.ts';

/** How many dead letters of each topic nobody has replayed. @throws what the log and Postgres throw. */
export async function waitingLetters(
  { letters, database }: { readonly letters: Pick<DeadLetters, 'count'>; readonly database: Pick<Database, 'query'> },
  topics: readonly Topic[],
): Promise<{ labels: { topic: string }; value: number }[]> {
  const replays = await countReplays(database);
  return Promise.all(
    topics.map(async (topic) => ({
      labels: { topic: topic.name },
      // A letter may be gone from the log after its replay.
      value: Math.max(0, (await letters.count(topic)) - (replays.get(topic.name) ?? 0)),
    })),
  );
}
