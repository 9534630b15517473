export interface JoinedBytes {
  readonly bytes: Buffer;
  /** Counted from one, as `substr` does. */
  readonly starts: readonly number[];
  /** Null where there were no bytes. */
  readonly sizes: readonly (number | null)[];
}

/**
 * Many values as one, which goes to Postgres as it is; an array of them would go as text, twice as long. There `substr` cuts
 * it up again, and gives null for a size of null.
 */
export function joinBytes(values: readonly (Uint8Array | undefined)[]): JoinedBytes {
  const starts: number[] = [];
  let end = 0;
  for (const value of values) {
    starts.push(end + 1);
    end += value?.byteLength ?? 0;
  }
  return {
    bytes: Buffer.concat(values.filter((value) => value !== undefined)),
    starts,
    sizes: values.map((value) => value?.byteLength ?? null),
  };
}
