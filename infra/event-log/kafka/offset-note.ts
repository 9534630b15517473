/** What stands in the metadata of a committed offset. Kafka keeps at most 4,096 bytes of it. */
export interface OffsetNote {
  /** A cut that was begun: first and last offset. The committed offset is the first. */
  readonly cut?: readonly [number, number];
  /** Everything before this offset is done. The committed offset is the same. */
  readonly next?: number;
  /** A replay that this position is part of. */
  readonly replay?: Replay;
}

/** Old events are stored anew, in order: their cuts must not be taken for repeats of what was stored before. */
export interface Replay {
  /** Sets the tokens of this replay apart from those of every other time. */
  readonly salt: string;
  /** Offset from which on events were never stored. */
  readonly until: number;
}

const version = 1;

export function writeNote(note: OffsetNote): string {
  const { cut, next, replay } = note;
  return JSON.stringify({ runlake: version, cut, next, ...(replay ? { salt: replay.salt, until: replay.until } : {}) });
}

/** @returns undefined where the metadata is not a note of this version: somebody else has set the offset. */
export function readNote(metadata: string | null | undefined): OffsetNote | undefined {
  const found = parse(metadata);
  if (found?.runlake !== version) return undefined;
  const { cut, next, salt, until } = found;
  const replay = typeof salt === 'string' && isOffset(until) ? { replay: { salt, until } } : {};
  if (isOffset(next)) return { next, ...replay };
  if (!Array.isArray(cut) || cut.length !== 2) return undefined;
  const [first, last] = cut as [unknown, unknown];
  return isOffset(first) && isOffset(last) && first <= last ? { cut: [first, last], ...replay } : undefined;
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
