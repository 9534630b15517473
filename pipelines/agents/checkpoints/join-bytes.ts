export interface JoinedBytes {
  readonly bytes: Buffer;
  /** Positions of the values, from 1 as in `substr`. */
  readonly starts: readonly number[];
  /** Lengths of the values; null for an undefined value. */
  readonly sizes: readonly (number | null)[];
}

/**
 * Concatenates values into one binary parameter. An array parameter would be sent as hexadecimal text, twice as long.
 * The statement splits it with `substr`, which returns null for a null length.
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
