import { Readable } from 'node:stream';
import { stringify } from 'csv-stringify';
import type { UsageRow } from '../../../pipelines/usage/granular-usage.ts';
import { formatUsageTime } from './usage-time.ts';

/** Header texts and order of SPEC.md 2.5, each with the cell of a row. */
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
 * Formats the rows as CSV in UTF-8: always all columns, CRLF line ends, quotes as RFC 4180 requires.
 * Returns a stream, so that a large file neither blocks other requests nor is in memory twice.
 */
export function usageCsv(rows: Iterable<UsageRow>): Readable {
  const lines = stringify({
    header: true,
    columns: columns.map(([header]) => header),
    record_delimiter: 'windows',
    // By default the library quotes only complete line ends.
    quoted_match: /[\r\n]/,
  });
  const cells = Readable.from(generateCells(rows));
  cells.on('error', (error) => lines.destroy(error));
  return cells.pipe(lines);
}

function* generateCells(rows: Iterable<UsageRow>) {
  for (const row of rows) yield columns.map(([, cell]) => cell(row));
}

/**
 * Text that spreadsheets evaluate as a formula, also after white space and quotes, which some of them skip, and in
 * full-width characters, which some of them convert. Source: OWASP, "CSV Injection".
 */
const formula = /^(?:[\s"'\p{Cc}\p{Cf}]*[=+\-@＝＋－＠]|[\t\r\n])/u;

/** Returns the text of a cell, preceded by an apostrophe if a spreadsheet would evaluate it as a formula. */
function text(value: string | null | undefined): string {
  if (value === null || value === undefined) return '';
  return formula.test(value) ? `'${value}` : value;
}
