import { type Replay, readNote } from './offset-note.ts';

/** What Kafka says of a partition when it is assigned. */
export interface FoundPosition {
  /** Committed offset of the group; negative where there is none. */
  readonly committed: number;
  readonly metadata: string | null | undefined;
  /** First offset that the log still holds, and the one that the next event will get. */
  readonly low: number;
  readonly high: number;
}

/** Where to begin, and how. */
export interface StartingPoint {
  readonly offset: number;
  /** A cut that was begun: the first batch is exactly this, whole. */
  readonly exact?: readonly [number, number];
  readonly replay?: Replay;
  /** Why the position cannot simply be gone on from. */
  readonly because?: 'no position' | 'a position of somebody else' | 'events were deleted' | 'the log is another one';
  /** Events that are gone from the log before they were stored. */
  readonly lostEvents: number;
}

/**
 * Decides where the handling of a partition begins.
 *
 * A cut may have been stored by whoever had the partition before. Where the note tells exactly how far that went, handling
 * goes on from there, and a cut that was begun is repeated whole under its old tokens, so that what is there of it is
 * recognised. Where it does not tell, everything from the best known position up to the end of the log, as it stands now, is
 * stored anew in order under tokens of its own: with the old ones, cuts that happen to have the same bounds as before would be
 * dropped as repeats while older ones before them are inserted anew, and older values would win.
 */
export function startingPoint(found: FoundPosition, newSalt: () => string): StartingPoint {
  const { committed, low, high } = found;
  const anew = (from: number, because: NonNullable<StartingPoint['because']>, until = high): StartingPoint => {
    const offset = Math.min(Math.max(from, low), Math.max(high, low));
    const lostEvents = committed >= 0 && committed < low ? low - committed : 0;
    // Nothing in the log that may have been stored before: its tokens need no salt.
    if (offset >= until) return { offset, because, lostEvents };
    return { offset, because, lostEvents, replay: { salt: newSalt(), until } };
  };
  if (committed < 0) return low === high ? { offset: high, lostEvents: 0 } : anew(low, 'no position');
  const note = readNote(found.metadata);
  if (committed > high) return anew(low, 'the log is another one');
  if (note === undefined || (note.cut?.[0] ?? note.next) !== committed) {
    return anew(committed, 'a position of somebody else');
  }
  if (committed < low) return anew(low, 'events were deleted');
  if (note.cut && note.cut[1] >= high) return anew(committed, 'the log is another one');
  const replay = note.replay && committed < note.replay.until ? { replay: note.replay } : {};
  return { offset: committed, lostEvents: 0, ...replay, ...(note.cut ? { exact: note.cut } : {}) };
}
