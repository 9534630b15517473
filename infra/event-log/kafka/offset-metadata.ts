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
 * drops the rows as repeats.
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
