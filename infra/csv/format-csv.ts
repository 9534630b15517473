import { pipeline, Readable } from 'node:stream';
import { stringify } from 'csv-stringify';

/**
 * Formats rows as CSV in UTF-8: CRLF line ends, quotes as RFC 4180 requires. Returns a stream, so that a large file does
 * not block other requests and is not in memory. An error of `rows` destroys the stream.
 */
export function formatCsv(
  header: readonly string[],
  rows: Iterable<readonly unknown[]> | AsyncIterable<readonly unknown[]>,
): Readable {
  const lines = stringify({
    header: true,
    columns: [...header],
    record_delimiter: 'windows',
    // By default the library quotes a cell that contains CRLF, but not one that contains only CR or only LF.
    quoted_match: /[\r\n]/,
  });
  pipeline(Readable.from(rows), lines, () => undefined);
  return lines;
}
