import { decodeOffsetMetadata, type Replay } from './offset-metadata.ts';

/** Committed offset and log bounds of a partition at its assignment. */
export interface FoundPosition {
  /** Committed offset of the group; negative if it has none. */
  readonly committed: number;
  readonly metadata: string | null | undefined;
  /** First offset that the log still holds, and the log-end offset. */
  readonly low: number;
  readonly high: number;
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
