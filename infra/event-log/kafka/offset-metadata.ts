/** The committed offsets of a group: the metadata committed with them, and where to start consuming a partition. */
import type { Admin } from 'kafkajs';

/** Metadata committed with an offset. Kafka stores at most 4,096 bytes of it. */
export interface OffsetMetadata {
  /** First and last offset of a batch whose inserts have begun. The committed offset is the first. */
  readonly batch?: readonly [number, number];
  /** Every event before this offset is consumed. Equals the committed offset. */
  readonly next?: number;
  /** Present while this position is part of a replay. */
  readonly replay?: Replay;
}

/**
 * A replay inserts old events again, in order. Its tokens must differ from those of earlier inserts, or ClickHouse
 * deduplicates the rows away.
 */
export interface Replay {
  /** Part of the tokens; unique for each replay. */
  readonly salt: string;
  /** First offset that was never stored; the replay ends there. */
  readonly until: number;
}

const version = 1;

export function encodeOffsetMetadata(metadata: OffsetMetadata): string {
  const { batch, next, replay } = metadata;
  return JSON.stringify({
    runlake: version,
    batch,
    next,
    ...(replay ? { salt: replay.salt, until: replay.until } : {}),
  });
}

/** @returns undefined if the metadata is not of this version; another tool has set the offset then. */
export function decodeOffsetMetadata(metadata: string | null | undefined): OffsetMetadata | undefined {
  const found = parse(metadata);
  if (found?.runlake !== version) return undefined;
  const { batch, next, salt, until } = found;
  const replay = typeof salt === 'string' && isOffset(until) ? { replay: { salt, until } } : {};
  if (isOffset(next)) return { next, ...replay };
  if (!Array.isArray(batch) || batch.length !== 2) return undefined;
  const [first, last] = batch as [unknown, unknown];
  return isOffset(first) && isOffset(last) && first <= last ? { batch: [first, last], ...replay } : undefined;
}

function parse(metadata: string | null | undefined): Record<string, unknown> | undefined {
  try {
    const found: unknown = JSON.parse(metadata ?? '');
    return typeof found === 'object' && found !== null ? (found as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function isOffset(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Committed offset and log bounds of a partition at its assignment. */
export interface FoundPosition {
  /** Committed offset of the group; negative if it has none. */
  readonly committed: number;
  readonly metadata: string | null | undefined;
  /** First offset that the log still holds, and the log-end offset. */
  readonly low: number;
  readonly high: number;
}

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

/** Where and how to start consuming a partition. */
export interface StartingPoint {
  readonly offset: number;
  /** A batch that was begun: the first batch must be exactly this offset range. */
  readonly exact?: readonly [number, number];
  readonly replay?: Replay;
  /** Why the partition cannot continue at its committed offset. */
  readonly because?:
    | 'no position'
    | 'the metadata of another program'
    | 'events were deleted'
    | 'the log is another one';
  /** Number of events that were deleted from the log before they were stored. */
  readonly lostEvents: number;
}

/**
 * Decides where to start consuming a partition.
 *
 * The previous owner may have stored part of a batch. If the offset metadata states exactly how far it came,
 * consumption continues there: a batch that was begun is repeated whole under its old tokens, so that ClickHouse
 * recognises the part that is stored. Otherwise everything from the best known position to the current log-end offset
 * is replayed in order under new tokens. With the old tokens, batches that happen to have the same bounds as before
 * would be dropped as repeats while older batches before them are inserted again, and older values would win.
 */
export function startingPoint(found: FoundPosition, newSalt: () => string): StartingPoint {
  const { committed, low, high } = found;
  const replayFrom = (from: number, because: NonNullable<StartingPoint['because']>, until = high): StartingPoint => {
    const offset = Math.min(Math.max(from, low), Math.max(high, low));
    const lostEvents = committed >= 0 && committed < low ? low - committed : 0;
    // The log has no event that may have been stored before, so the tokens need no salt.
    if (offset >= until) return { offset, because, lostEvents };
    return { offset, because, lostEvents, replay: { salt: newSalt(), until } };
  };
  if (committed < 0) return low === high ? { offset: high, lostEvents: 0 } : replayFrom(low, 'no position');
  const metadata = decodeOffsetMetadata(found.metadata);
  if (committed > high) return replayFrom(low, 'the log is another one');
  if (metadata === undefined || (metadata.batch?.[0] ?? metadata.next) !== committed) {
    return replayFrom(committed, 'the metadata of another program');
  }
  if (committed < low) return replayFrom(low, 'events were deleted');
  if (metadata.batch && metadata.batch[1] >= high) return replayFrom(committed, 'the log is another one');
  const replay = metadata.replay && committed < metadata.replay.until ? { replay: metadata.replay } : {};
  return { offset: committed, lostEvents: 0, ...replay, ...(metadata.batch ? { exact: metadata.batch } : {}) };
}
