import type { Admin } from 'kafkajs';
import type { FoundPosition } from './starting-point.ts';

/**
 * Committed offset, metadata, and first and log-end offset of each partition of `topic` for `group`. @throws what Kafka
 * throws.
 */
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
 * Whether a group has consumed up to `end`. Offsets that no longer exist count as consumed: those that retention
 * deleted, and those beyond the log-end offset of a recreated topic.
 */
export function isPast(found: FoundPosition | undefined, end: number): boolean {
  if (found === undefined) return end === 0;
  const { committed, low, high } = found;
  return Math.max(committed, low) >= Math.min(end, high);
}
