/**
 * Parses ClickHouse RowBinary rows whose columns are all `Nullable(String)`. Does not copy or decode values, so that
 * the stored bytes are returned unchanged. A value is encoded as a null flag, the length as LEB128, and the bytes.
 * Source: ClickHouse documentation, "RowBinary".
 *
 * @returns the rows with their values in column order. Each value is a view into `answer`.
 */
export function readNullableTextRows(answer: Buffer, columns: number): (Buffer | undefined)[][] {
  const rows: (Buffer | undefined)[][] = [];
  let at = 0;
  while (at < answer.length) {
    const row = new Array<Buffer | undefined>(columns);
    for (let column = 0; column < columns; column++) {
      if (answer[at++] === 1) continue;
      let length = 0;
      let factor = 1;
      let byte: number;
      do {
        byte = answer[at++]!;
        length += (byte & 0x7f) * factor;
        factor *= 128;
      } while (byte > 0x7f);
      row[column] = answer.subarray(at, at + length);
      at += length;
    }
    rows.push(row);
  }
  return rows;
}
