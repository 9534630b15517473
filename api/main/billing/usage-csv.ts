import { Readable } from 'node:stream';
import { stringify } from 'csv-stringify';
import type { UsageRow } from '../../../pipelines/usage/granular-usage.ts';
import { formatUsageTime } from './usage-time.ts';

/** Header text and order of SPEC.md 2.5, each with the cell of a row. */
const columns: ReadonlyArray<readonly [header: string, cell: (row: UsageRow) => string | number]> = [
  ['Time Bucket Start', ({ startSeconds }) => formatUsageTime(startSeconds)],
  ['Time Bucket End', ({ endSeconds }) => formatUsageTime(endSeconds)],
  ['Workspace ID', ({ dimensions }) => text(dimensions.workspace_id)],
  ['Workspace Name', ({ dimensions }) => text(dimensions.workspace_name)],
  ['Project ID', ({ dimensions }) => text(dimensions.project_id)],
  ['Project Name', ({ dimensions }) => text(dimensions.project_name)],
  ['User ID', ({ dimensions }) => text(dimensions.user_id)],
  ['User Email', ({ dimensions }) => text(dimensions.user_email)],
  ['API Key Short Key', ({ dimensions }) => text(dimensions.api_key_short_key)],
  ['Traces', ({ traces }) => traces],
];

/**
 * The rows as a CSV file in UTF-8: every column always, CRLF at the end of each line, quotes where RFC 4180 asks for them.
 * A stream, so that a large file neither blocks other requests nor lies in memory twice.
 */
export function usageCsv(rows: Iterable<UsageRow>): Readable {
  const lines = stringify({
    header: true,
    columns: columns.map(([header]) => header),
    record_delimiter: 'windows',
    // By itself the library quotes only whole line ends.
    quoted_match: /[\r\n]/,
  });
  const cells = Readable.from(cellsOf(rows));
  cells.on('error', (error) => lines.destroy(error));
  return cells.pipe(lines);
}

function* cellsOf(rows: Iterable<UsageRow>) {
  for (const row of rows) yield columns.map(([, cell]) => cell(row));
}

/**
 * What spreadsheets take for the start of a formula, also behind white space and quotes, which some of them skip, and in
 * the full-width forms that some of them convert. Source: OWASP, "CSV Injection".
 */
const formula = /^(?:[\s"'\p{Cc}\p{Cf}]*[=+\-@＝＋－＠]|[\t\r\n])/u;

/** The text of a cell, with an apostrophe in front where it would run as a formula. */
function text(value: string | null | undefined): string {
  if (value === null || value === undefined) return '';
  return formula.test(value) ? `'${value}` : value;
}
