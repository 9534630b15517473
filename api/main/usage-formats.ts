import { formatCsv } from '../../infra/csv/format-csv.ts';
import { itemsPerStep, runInTimeSlices, type StepwiseWork } from '../../infra/timeouts/time-slices.ts';
import { type Caller, requirePermission } from '../../pipelines/tenants/caller.ts';
import { type AgentUsageRow, readAgentUsage } from '../../pipelines/usage/agent-report.ts';
import {
  type GranularUsage,
  type GranularUsageRequest,
  generateUsageRows,
  readGranularUsage,
  type UsageRow,
} from '../../pipelines/usage/report.ts';
import type { Stride } from '../../pipelines/usage/rollup-query.ts';
import { readTokenUsage, type TokenUsageRow } from '../../pipelines/usage/token-usage.ts';
import type { Services } from '../server/services.ts';

/** Kinds of granular usage, and their rows as CSV and JSON. */

export const usageKinds = ['traces', 'langsmith_deployments', 'tokens'] as const;

/** Formats a time in whole seconds as it appears in responses: `2026-01-05T00:00:00Z`. */
export function formatUsageTime(seconds: number): string {
  return `${new Date(seconds * 1_000).toISOString().slice(0, 19)}Z`;
}

type Columns<Row> = ReadonlyArray<readonly [header: string, cell: (row: Row) => string | number]>;

/** The columns in their fixed order. Each entry has the header text and a function that returns the cell of a row. */
const dimensionColumns: Columns<Omit<UsageRow, 'traces'>> = [
  ['Time Bucket Start', ({ startSeconds }) => formatUsageTime(startSeconds)],
  ['Time Bucket End', ({ endSeconds }) => formatUsageTime(endSeconds)],
  ['Workspace ID', ({ dimensions }) => escapeFormula(dimensions.workspace_id)],
  ['Workspace Name', ({ dimensions }) => escapeFormula(dimensions.workspace_name)],
  ['Project ID', ({ dimensions }) => escapeFormula(dimensions.project_id)],
  ['Project Name', ({ dimensions }) => escapeFormula(dimensions.project_name)],
  ['User ID', ({ dimensions }) => escapeFormula(dimensions.user_id)],
  ['User Email', ({ dimensions }) => escapeFormula(dimensions.user_email)],
  ['API Key Short Key', ({ dimensions }) => escapeFormula(dimensions.api_key_short_key)],
];
const traceColumns: Columns<UsageRow> = [...dimensionColumns, ['Traces', ({ traces }) => traces]];
const tokenColumns: Columns<TokenUsageRow> = [
  ...traceColumns,
  ['Prompt Tokens', ({ promptTokens }) => promptTokens],
  ['Completion Tokens', ({ completionTokens }) => completionTokens],
  ['Total Tokens', ({ totalTokens }) => totalTokens],
  ['Total Cost (USD)', ({ totalCost }) => totalCost ?? ''],
];
const agentColumns: Columns<AgentUsageRow> = [
  ...dimensionColumns,
  ['Nodes Executed', ({ nodesExecuted }) => nodesExecuted],
  ['Agent Runs', ({ agentRuns }) => agentRuns],
  ['Agent Uptime (seconds)', ({ uptimeSeconds }) => uptimeSeconds],
];

function formatUsageCsv<Row>(columns: Columns<Row>, rows: Iterable<Row>) {
  function* generateCells() {
    for (const row of rows) yield columns.map(([, cell]) => cell(row));
  }
  return formatCsv(
    columns.map(([name]) => name),
    generateCells(),
  );
}

/**
 * Matches text that a spreadsheet would evaluate as a formula. Some spreadsheets skip white space and quotes at the
 * start, and some convert full-width characters. Source: OWASP, "CSV Injection".
 */
const formulaPattern = /^(?:[\s"'\p{Cc}\p{Cf}]*[=+\-@＝＋－＠]|[\t\r\n])/u;

/** Returns the text of a cell. Adds a leading apostrophe if a spreadsheet would evaluate the text as a formula. */
function escapeFormula(value: string | null | undefined): string {
  if (value === null || value === undefined) return '';
  return formulaPattern.test(value) ? `'${value}` : value;
}

type UsageKind = (typeof usageKinds)[number];
type Format<Body> = (services: Services, request: GranularUsageRequest, caller: Caller) => Promise<Body>;

/** Reads tokens only for callers that may read runs. */
async function readTokens(services: Services, request: GranularUsageRequest, caller: Caller) {
  requirePermission(caller, 'runs:read');
  return readTokenUsage(services, request);
}

export const formatCsvOfKind: Readonly<Record<UsageKind, Format<ReturnType<typeof formatUsageCsv>>>> = {
  traces: async (services, request) =>
    formatUsageCsv(traceColumns, generateUsageRows(await readGranularUsage(services, request))),
  langsmith_deployments: async ({ database }, request) =>
    formatUsageCsv(agentColumns, (await readAgentUsage(database, request)).rows),
  tokens: async (services, request, caller) =>
    formatUsageCsv(tokenColumns, (await readTokens(services, request, caller)).rows),
};

export const formatJsonOfKind: Readonly<Record<UsageKind, Format<Buffer>>> = {
  traces: async (services, request) => runInTimeSlices(formatUsageJson(await readGranularUsage(services, request))),
  langsmith_deployments: async ({ database }, request) =>
    runInTimeSlices(
      formatRowsJson(await readAgentUsage(database, request), ({ nodesExecuted, agentRuns, uptimeSeconds }) => ({
        nodes_executed: nodesExecuted,
        agent_runs: agentRuns,
        agent_uptime_seconds: uptimeSeconds,
      })),
    ),
  tokens: async (services, request, caller) =>
    runInTimeSlices(
      formatRowsJson(await readTokens(services, request, caller), (row) => ({
        traces: row.traces,
        prompt_tokens: row.promptTokens,
        completion_tokens: row.completionTokens,
        total_tokens: row.totalTokens,
        total_cost: row.totalCost,
      })),
    ),
};

/**
 * Serialises the body of GET /orgs/current/billing/granular-usage according to its schema. Each dimension is serialised
 * only once, because the usage of one month, grouped by API key, has tens of thousands of rows that share a few hundred
 * dimensions.
 */
export function* formatUsageJson({ stride, dimensions, buckets }: GranularUsage): StepwiseWork<Buffer> {
  const dimensionTexts: string[] = [];
  for (const dimension of dimensions) {
    if (dimensionTexts.length % itemsPerStep === 0) yield;
    dimensionTexts.push(`,"dimensions":${JSON.stringify(dimension)},"traces":`);
  }
  const parts: Buffer[] = [];
  let text = openBody(stride);
  let separator = '';
  for (const { startSeconds, traces } of buckets) {
    const head = `{"time_bucket":"${formatUsageTime(startSeconds)}"`;
    for (let index = 0; index < traces.length; index++) {
      if (index % itemsPerStep === 0) {
        parts.push(Buffer.from(text));
        text = '';
        yield;
      }
      if (traces[index] === 0) continue;
      text += `${separator}${head}${dimensionTexts[index]}${traces[index]}}`;
      separator = ',';
    }
  }
  return Buffer.concat([...parts, Buffer.from(`${text}]}`)]);
}

const openBody = ({ days, hours }: Stride) => `{"stride":${JSON.stringify({ days, hours })},"usage":[`;

/** Serialises a report as {@link formatUsageJson} does, with the figures that `format` returns for a row. */
function* formatRowsJson<Row extends Omit<UsageRow, 'traces'>>(
  { stride, rows }: { readonly stride: Stride; readonly rows: readonly Row[] },
  format: (row: Row) => object,
): StepwiseWork<Buffer> {
  const parts: Buffer[] = [];
  let text = openBody(stride);
  for (const [index, row] of rows.entries()) {
    if (index % itemsPerStep === 0) {
      parts.push(Buffer.from(text));
      text = '';
      yield;
    }
    const usage = { time_bucket: formatUsageTime(row.startSeconds), dimensions: row.dimensions, ...format(row) };
    text += `${index === 0 ? '' : ','}${JSON.stringify(usage)}`;
  }
  return Buffer.concat([...parts, Buffer.from(`${text}]}`)]);
}
