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

/**
 * Whether a group is done with the offsets before `end`, as far as they are there: what retention took away, and what a topic
 * that was made anew never had, nobody will handle.
 */
export function isPast(found: FoundPosition | undefined, end: number): boolean {
  if (found === undefined) return end === 0;
  const { committed, low, high } = found;
  return Math.max(committed, low) >= Math.min(end, high);
}
