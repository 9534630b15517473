/** What the rows of a usage query say, with each id once. */
export interface UsageCounts {
  /** Projects, users, keys or workspaces, in no order. */
  readonly ids: readonly string[];
  /** In no order; where nothing was to be summed a bucket may come more than once. */
  readonly rows: readonly UsageCountRow[];
}

export interface UsageCountRow {
  /** Number of the bucket. */
  readonly bucket: number;
  /** For each entry where its id stands in `ids`. */
  readonly places: Uint32Array;
  /** The traces of each entry. */
  readonly traces: Float64Array;
}

/**
 * Reads rows of `bucket UInt32, ids Array(UUID), traces Array(UInt64)` out of ClickHouse's RowBinary.
 *
 * Ids are told apart by their bytes and put into words once each: a report repeats them in every bucket, and as JSON they were
 * most of it.
 * Source: ClickHouse documentation, "RowBinary": arrays are their length as LEB128 and the elements; a UUID is two
 * little-endian halves.
 */
export function readUsageRows(answer: Buffer): UsageCounts {
  const ids: string[] = [];
  const placeOf = new Map<string, number>();
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
    const places = new Uint32Array(length());
    for (let entry = 0; entry < places.length; entry++, at += 16) {
      const bytes = answer.toString('latin1', at, at + 16);
      let place = placeOf.get(bytes);
      if (place === undefined) {
        place = ids.push(uuidText(answer, at)) - 1;
        placeOf.set(bytes, place);
      }
      places[entry] = place;
    }
    const traces = new Float64Array(length());
    for (let entry = 0; entry < traces.length; entry++, at += 8) {
      traces[entry] = answer.readUInt32LE(at) + answer.readUInt32LE(at + 4) * 2 ** 32;
    }
    rows.push({ bucket, places, traces });
  }
  return { ids, rows };
}

function uuidText(answer: Buffer, at: number): string {
  const hex = Buffer.from(answer.subarray(at, at + 16))
    .swap64()
    .toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
