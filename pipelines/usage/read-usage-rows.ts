/** The result of a usage query, with each id once. */
export interface UsageCounts {
  /** Ids of projects, users, keys or workspaces, unordered. */
  readonly ids: readonly string[];
  /** Unordered; if the query did not have to sum, a bucket may occur more than once. */
  readonly rows: readonly UsageCountRow[];
}

export interface UsageCountRow {
  /** Index of the bucket. */
  readonly bucket: number;
  /** For each entry the index of its id in `ids`. */
  readonly idIndexes: Uint32Array;
  /** The number of traces of each entry. */
  readonly traces: Float64Array;
}

/**
 * Decodes rows of `bucket UInt32, ids Array(UUID), traces Array(UInt64)` from ClickHouse's RowBinary.
 *
 * Ids are compared as bytes and formatted once each, because a report repeats them in every bucket. Source: ClickHouse
 * documentation, "RowBinary": an array is its length as LEB128 followed by its elements; a UUID is two little-endian
 * halves.
 */
export function readUsageRows(answer: Buffer): UsageCounts {
  const ids: string[] = [];
  const indexByBytes = new Map<string, number>();
  const rows: UsageCountRow[] = [];
  let at = 0;
  const length = () => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = answer[at++]!;
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
    }
  };
  while (at < answer.length) {
    const bucket = answer.readUInt32LE(at);
    at += 4;
    const idIndexes = new Uint32Array(length());
    for (let entry = 0; entry < idIndexes.length; entry++, at += 16) {
      const bytes = answer.toString('latin1', at, at + 16);
      let index = indexByBytes.get(bytes);
      if (index === undefined) {
        index = ids.push(formatUuid(answer, at)) - 1;
        indexByBytes.set(bytes, index);
      }
      idIndexes[entry] = index;
    }
    const traces = new Float64Array(length());
    for (let entry = 0; entry < traces.length; entry++, at += 8) {
      traces[entry] = answer.readUInt32LE(at) + answer.readUInt32LE(at + 4) * 2 ** 32;
    }
    rows.push({ bucket, idIndexes, traces });
  }
  return { ids, rows };
}

function formatUuid(answer: Buffer, at: number): string {
  const hex = Buffer.from(answer.subarray(at, at + 16))
    .swap64()
    .toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
