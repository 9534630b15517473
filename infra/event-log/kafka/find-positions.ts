import type { Admin } from 'kafkajs';
import type { FoundPosition } from './starting-point.ts';

/** What Kafka says of each partition of `topic` and how far `group` has come. @throws what Kafka throws. */
export async function findPositions(
  admin: Admin,
  group: string,
  topic: string,
): Promise<ReadonlyMap<number, FoundPosition>> {
  const [committed, ends] = await Promise.all([
    admin.fetchOffsets({ groupId: group, topics: [topic] }),
    admin.fetchTopicOffsets(topic),
  ]);
  const found = new Map<number, FoundPosition>();
  for (const { partition, offset, metadata } of committed.flatMap(({ partitions }) => partitions)) {
    const end = ends.find((each) => each.partition === partition);
    if (end === undefined) continue;
    found.set(partition, { committed: Number(offset), metadata, low: Number(end.low), high: Number(end.high) });
  }
  return found;
}
