import { pipeline, Readable } from 'node:stream';
import { stringify } from 'csv-stringify';
import { endSlice } from '../timeouts/time-slices.ts';

/**
 * Formats rows as CSV in UTF-8, with CRLF line endings and with quotes as required by RFC 4180. Returns a stream, so
 * that a large file does not block other requests and is not held in memory. An error of `rows` destroys the stream.
 */
export function formatCsv(
  header: readonly string[],
  rows: Iterable<readonly unknown[]> | AsyncIterable<readonly unknown[]>,
): Readable {
  const lines = stringify({
    header: true,
    columns: [...header],
    record_delimiter: 'windows',
    // By default, the library quotes a cell that contains CRLF, but not a cell that contains only CR or only LF.
    quoted_match: /[\r\n]/,
  });
  pipeline(Readable.from(pauseBetween(rows)), lines, () => undefined);
  return lines;
}

/** Yields the rows in time slices: a client that reads quickly would get them all in one turn of the event loop. */
async function* pauseBetween<Row>(rows: Iterable<Row> | AsyncIterable<Row>): AsyncGenerator<Row> {
  for await (const row of rows) {
    yield row;
    const turn = endSlice();
    if (turn) await turn;
  }
}
