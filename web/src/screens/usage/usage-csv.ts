import type { UsageReport, UsageRow } from './report.ts';

/** A usage report as CSV, in the form that the API exports: RFC 4180, lines end with CRLF, all columns are present. */

type Columns = readonly (readonly [header: string, cell: (row: UsageRow) => string | number | null | undefined])[];

const traceColumns: Columns = [
  ['Time Bucket Start', ({ bucket }) => formatTime(bucket.startMs)],
  ['Time Bucket End', ({ bucket }) => formatTime(bucket.endMs)],
  ['Workspace ID', ({ dimensions }) => dimensions.workspace_id],
  ['Workspace Name', ({ dimensions }) => escapeFormula(dimensions.workspace_name)],
  ['Project ID', ({ dimensions }) => dimensions.project_id],
  ['Project Name', ({ dimensions }) => escapeFormula(dimensions.project_name)],
  ['User ID', ({ dimensions }) => escapeFormula(dimensions.user_id)],
  ['User Email', ({ dimensions }) => escapeFormula(dimensions.user_email)],
  ['API Key Short Key', ({ dimensions }) => escapeFormula(dimensions.api_key_short_key)],
  ['Traces', ({ traces }) => traces],
];
const tokenColumns: Columns = [
  ['Prompt Tokens', ({ promptTokens }) => promptTokens],
  ['Completion Tokens', ({ completionTokens }) => completionTokens],
  ['Total Tokens', ({ totalTokens }) => totalTokens],
  ['Total Cost (USD)', ({ totalCost }) => totalCost],
];

export function formatUsageCsv({ rows }: UsageReport, hasTokens: boolean): string {
  const columns = hasTokens ? [...traceColumns, ...tokenColumns] : traceColumns;
  const lines = [columns.map(([header]) => header), ...rows.map((row) => columns.map(([, cell]) => cell(row) ?? ''))];
  return lines.map((cells) => `${cells.map((cell) => quote(String(cell))).join(',')}\r\n`).join('');
}

function formatTime(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`;
}

function quote(cell: string): string {
  return /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}

/** Adds an apostrophe before a text that a spreadsheet would evaluate as a formula, by the same rule as the API. */
function escapeFormula(text: string | null | undefined): string {
  const isFormula = /^(?:[\s"'\p{Cc}\p{Cf}]*[=+\-@＝＋－＠]|[\t\r\n])/u.test(text ?? '');
  return `${isFormula ? "'" : ''}${text ?? ''}`;
}

/** Lets the browser save a text as a file. */
export function saveFile(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  // Some browsers begin to read the file only after this event.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
