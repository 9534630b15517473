/** The committed offsets of a group, and where to start consuming a partition. */
import type { Admin } from 'kafkajs';

/** Committed offset and log bounds of a partition at its assignment. */
export interface FoundPosition {
  /** Committed offset of the group; negative if it has none. */
  readonly committed: number;
  /** First offset that the log still holds, and the log-end offset. */
  readonly low: number;
  readonly high: number;
}

/**
 * Returns the committed offset of `group`, and the first and log-end offsets, for each partition of `topic`. @throws
 * the errors of Kafka.
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
  for (const { partition, offset } of committed.flatMap(({ partitions }) => partitions)) {
    const end = ends.find((each) => each.partition === partition);
    if (end === undefined) continue;
    found.set(partition, { committed: Number(offset), low: Number(end.low), high: Number(end.high) });
  }
  return found;
}

/**
 * Returns true if a group has consumed all records before `end`. Offsets that no longer exist count as consumed: those
 * that retention deleted, and those beyond the log-end offset of a recreated topic.
 */
export function isPast(found: FoundPosition | undefined, end: number): boolean {
  if (found === undefined) return end === 0;
  const { committed, low, high } = found;
  return Math.max(committed, low) >= Math.min(end, high);
}

/** Where to start consuming a partition. */
export interface StartingPoint {
  readonly offset: number;
  /** Why the partition cannot continue at its committed offset. */
  readonly reason?: 'the group has no committed offset' | 'events were deleted' | 'the log is another one';
  /** Number of events that were deleted from the log before they were stored. */
  readonly lostEvents: number;
}

/**
 * Decides where to start consuming a partition: at the committed offset or, if the log does not have it, at the first
 * offset. Events that were stored before may be stored again from there; the result is the same.
 */
export function chooseStartingPoint({ committed, low, high }: FoundPosition): StartingPoint {
  if (committed < 0) return { offset: low, reason: 'the group has no committed offset', lostEvents: 0 };
  if (committed > high) return { offset: low, reason: 'the log is another one', lostEvents: 0 };
  if (committed < low) return { offset: low, reason: 'events were deleted', lostEvents: low - committed };
  return { offset: committed, lostEvents: 0 };
}
