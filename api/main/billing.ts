import { type Static, Type } from 'typebox';
import { type FieldError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { Dictionary } from '../../infra/json/dictionary.ts';
import { parseUuid } from '../../pipelines/ingest/run-event/uuid.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import { type GranularUsageRequest, readOrganizationUsage } from '../../pipelines/usage/report.ts';
import { groupings } from '../../pipelines/usage/report-query.ts';
import type { UsageRange } from '../../pipelines/usage/rollup-query.ts';
import { jsonMediaType, nullable, OneOf, optional } from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { formatCsvOfKind, formatJsonOfKind, formatUsageTime, usageKinds } from './usage-formats.ts';

/**
 * Matches an ISO 8601 date, optionally with a time of any precision. The time zone is `Z` or an offset; a time without
 * a time zone is UTC. A space before an offset is read as `+`, because an unescaped `+` in a query decodes to a space.
 */
const usageTimePattern =
  /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(\.\d{1,9})?)?(?:(Z)|([+ -])(\d\d):?(\d\d))?)?$/i;

/**
 * Returns milliseconds since 1970, with a fraction if the text is more precise than that. Returns undefined if the text
 * is not a valid time.
 */
function parseUsageTime(text: string): number | undefined {
  const match = usageTimePattern.exec(text);
  if (!match) return undefined;
  const [year, month, day, hour, minute, second] = match.slice(1, 7).map((digits) => Number(digits ?? 0)) as DateParts;
  const [fraction = '', , sign = '+', offsetHours = 0, offsetMinutes = 0] = match.slice(7);
  const wholeMs = Date.UTC(year, month - 1, day, hour, minute, second);
  // `Date.UTC` converts a nonexistent day (such as 30 February) to another day.
  if (new Date(wholeMs).toISOString().slice(0, 10) !== text.slice(0, 10)) return undefined;
  if (hour > 23 || minute > 59 || second > 59 || Number(offsetHours) > 15 || Number(offsetMinutes) > 59)
    return undefined;
  const offsetMs = (Number(offsetHours) * 60 + Number(offsetMinutes)) * 60_000;
  return wholeMs + Number(`0${fraction}`) * 1_000 + (sign === '-' ? offsetMs : -offsetMs);
}
type DateParts = [number, number, number, number, number, number];

const UsageTime = (description: string) =>
  Type.Refine(
    Type.String({
      description: `${description} ISO 8601; UTC if it has no zone.`,
      examples: ['2026-01-05T00:00:00Z'],
    }),
    (text) => parseUsageTime(text) !== undefined,
    () => 'must be an ISO 8601 date and time, such as 2026-01-05T00:00:00Z',
  );

const earliestMs = Date.UTC(1970, 0, 1);
const latestMs = Date.UTC(2200, 0, 1);

/**
 * Returns the range between the times in the parameters `startName` and `endName`, after validating them.
 *
 * @throws INVALID_REQUEST with the invalid parameters.
 */
function readUsageRange(query: Readonly<Record<string, unknown>>, startName: string, endName: string): UsageRange {
  const startMs = parseUsageTime(String(query[startName])) ?? Number.NaN;
  const endMs = parseUsageTime(String(query[endName])) ?? Number.NaN;
  const fields: FieldError[] = [];
  for (const [name, ms] of [
    [startName, startMs],
    [endName, endMs],
  ] as const) {
    if (ms >= earliestMs && ms <= latestMs) continue;
    fields.push({ loc: ['query', name], msg: 'must be between the years 1970 and 2200', type: 'out_of_range' });
  }
  if (fields.length === 0 && endMs <= startMs) {
    fields.push({ loc: ['query', endName], msg: `must be after ${startName}`, type: 'range_order' });
  }
  if (fields.length > 0) throw runlakeError('INVALID_REQUEST', {}, { fields });
  return { startMs, endMs };
}

/**
 * Maximum number of workspace ids in one usage request. All ids are part of one query, and the maximum length of a URL
 * allows only a few more.
 */
const maxWorkspaceIds = 200;

/** Query parameters of granular usage, for JSON and CSV. */
const GranularUsageQuery = Type.Object({
  start_time: UsageTime('Start of the range, rounded down to the hour.'),
  end_time: UsageTime('End of the range, after start_time, rounded up to the hour.'),
  workspace_ids: Type.Array(Type.String(), {
    minItems: 1,
    description:
      `Workspaces to count, as a repeated parameter or separated by commas, at most ${maxWorkspaceIds}. ` +
      'Workspaces that the API key cannot read, or of other organisations, are ignored.',
  }),
  group_by: OneOf(groupings, {
    default: 'workspace',
    description: 'Dimension by which the traces of a bucket are grouped.',
  }),
  kind: OneOf(usageKinds, {
    default: 'traces',
    description:
      '`langsmith_deployments`: graph runs, executed nodes and uptime of agent servers in place of traces. `tokens`: traces, ' +
      'with the tokens and costs of those that are stored; it needs the permission `runs:read` too.',
  }),
});

/** Parameters that newer clients send and that are not supported. */
const unsupportedUsageParameters = ['trace_tier'] as const;

/**
 * Converts query parameters to a usage request. Restricts the request to workspaces that the caller can read.
 *
 * @throws INVALID_REQUEST, PARAMETER_NOT_SUPPORTED
 */
function toGranularUsageRequest(query: Static<typeof GranularUsageQuery>, caller: Caller): GranularUsageRequest {
  const ids = parseWorkspaceIds(query.workspace_ids);
  return {
    organizationId: caller.organizationId,
    workspaceIds: [...new Set(ids)].filter((id) => caller.readableWorkspaceIds.has(id)),
    range: readUsageRange(query, 'start_time', 'end_time'),
    groupBy: query.group_by,
  };
}

function parseWorkspaceIds(values: readonly string[]): string[] {
  const ids = values.flatMap((value) => value.split(',')).map((id) => id.trim());
  const nonEmptyIds = ids.filter((id) => id !== '').map((id) => parseUuid(id) ?? id);
  const fields: FieldError[] = nonEmptyIds.flatMap((id, index) =>
    parseUuid(id) ? [] : [{ loc: ['query', 'workspace_ids', index], msg: 'must be a UUID', type: 'uuid_format' }],
  );
  if (nonEmptyIds.length === 0 || nonEmptyIds.length > maxWorkspaceIds) {
    const msg = `must name between 1 and ${maxWorkspaceIds} workspaces, not ${nonEmptyIds.length}`;
    fields.splice(0, fields.length, { loc: ['query', 'workspace_ids'], msg, type: 'item_count' });
  }
  if (fields.length > 0) throw runlakeError('INVALID_REQUEST', {}, { fields: fields.slice(0, 8) });
  return nonEmptyIds;
}

/** GET /orgs/current/billing/granular-usage/export */
const exportGranularUsage = defineOperation({
  operationId: 'exportGranularUsage',
  method: 'GET',
  path: '/orgs/current/billing/granular-usage/export',
  summary: 'Export granular usage as CSV',
  description:
    'The rows of granular usage, with the end of each bucket; the last bucket ends where counting ends. Lines end with CRLF ' +
    '(RFC 4180). All columns are present; those of other groupings are empty. An apostrophe precedes text that a spreadsheet ' +
    'would evaluate as a formula.',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  unsupported: { query: unsupportedUsageParameters },
  errors: ['BAD_REQUEST', ...clickhouseErrors],
  schema: {
    query: GranularUsageQuery,
    response: { 200: Type.String({ description: 'The CSV file.' }) },
    produces: 'text/csv; charset=utf-8',
  },
  handler: async ({ query, caller, services }) => {
    const request = toGranularUsageRequest(query, caller);
    const body = await formatCsvOfKind[query.kind](services, request, caller);
    const [from, to] = [request.range.startMs, request.range.endMs].map((ms) =>
      formatUsageTime(Math.floor(ms / 1_000)).slice(0, 10),
    );
    return new RawResponse({
      headers: {
        'content-type': 'text/csv; charset=utf-8',
        'content-disposition': `attachment; filename="usage-by-${request.groupBy}-${from}-to-${to}.csv"`,
      },
      body,
    });
  },
});

const Name = optional(Type.String());

const GranularUsageResponse = Type.Object({
  stride: Type.Object(
    { days: Type.Integer(), hours: Type.Integer() },
    { description: 'Size of a bucket, derived from the length of the range.' },
  ),
  usage: Type.Array(
    Type.Object({
      time_bucket: Type.String({ format: 'date-time', description: 'Start of the bucket, UTC.' }),
      dimensions: Type.Object(
        {
          workspace_id: Name,
          workspace_name: Name,
          project_id: Name,
          project_name: Name,
          user_id: Name,
          user_email: Name,
          api_key_short_key: Name,
        },
        { description: 'Only the keys of the grouping, with current names.' },
      ),
      traces: optional(Type.Integer({ description: 'Of `kind=traces` and `kind=tokens`.' })),
      prompt_tokens: optional(Type.Integer({ description: 'Only of `kind=tokens`, as the next three.' })),
      completion_tokens: optional(Type.Integer()),
      total_tokens: optional(
        Type.Integer({ description: 'Of the traces that are counted in the bucket and are still stored.' }),
      ),
      total_cost: optional(Type.Number({ description: 'In US dollars; null if no run states a cost.' })),
      nodes_executed: optional(Type.Integer({ description: 'Only of `kind=langsmith_deployments`, as the next two.' })),
      agent_runs: optional(Type.Integer({ description: 'Graph runs that ended in the bucket.' })),
      agent_uptime_seconds: optional(
        Type.Integer({ description: 'Time in which the deployment had a process; 0 by user or key.' }),
      ),
    }),
    { description: 'Ordered by bucket, then by dimension; without empty buckets.' },
  ),
});

/** GET /orgs/current/billing/granular-usage */
export const getGranularUsage = defineOperation({
  operationId: 'getGranularUsage',
  method: 'GET',
  path: '/orgs/current/billing/granular-usage',
  summary: 'Get traces per time bucket, by workspace, project, user or API key',
  description:
    'A trace counts once, in the hour of its start. The range is widened to whole hours. Buckets are one hour for ranges ' +
    'below one day, one day up to 31 days, one week up to 93 days, 30 days up to 366 days, and 365 days above. Buckets of days ' +
    'begin at midnight UTC of the day of start_time. All groupings and bucket sizes have the same total.',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  unsupported: { query: unsupportedUsageParameters },
  errors: ['BAD_REQUEST', ...clickhouseErrors],
  schema: { query: GranularUsageQuery, response: { 200: GranularUsageResponse } },
  handler: async ({ query, caller, services }) => {
    const request = toGranularUsageRequest(query, caller);
    const body = await formatJsonOfKind[query.kind](services, request, caller);
    return new RawResponse({ headers: { 'content-type': jsonMediaType }, body });
  },
});

const metric = { id: 'traces', name: 'Traces' } as const;

/** GET /orgs/current/billing/usage: the older usage report without time buckets, which tool servers read. */
const getOrganizationUsage = defineOperation({
  operationId: 'getOrganizationUsage',
  method: 'GET',
  path: '/orgs/current/billing/usage',
  summary: 'Get the usage of the organisation, by workspace',
  description:
    'One metric: the traces of the whole range, equal to the sum of granular usage. Counts only workspaces that the API key can ' +
    'read; `groups` omits workspaces without traces.',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  errors: ['BAD_REQUEST', ...clickhouseErrors],
  schema: {
    query: Type.Object({
      starting_on: UsageTime('Start of the range, rounded down to the hour.'),
      ending_before: UsageTime('End of the range, after starting_on, rounded up to the hour.'),
      on_current_plan: Type.Boolean({
        default: true,
        description: 'Has no effect: there is only one plan.',
      }),
    }),
    response: {
      200: Type.Array(
        Type.Object({
          customer_id: Type.String({ description: 'Id of the organisation.' }),
          billable_metric_id: Type.String(),
          billable_metric_name: Type.String(),
          start_timestamp: Type.String({ format: 'date-time', description: 'Start of the first counted hour.' }),
          end_timestamp: Type.String({ format: 'date-time', description: 'End of the last counted hour.' }),
          value: nullable(Type.Number()),
          groups: nullable(Dictionary(Type.Number()), {
            description: 'Traces by workspace id.',
          }),
        }),
      ),
    },
  },
  handler: async ({ query, caller, services }) => {
    const usage = await readOrganizationUsage(services, {
      organizationId: caller.organizationId,
      workspaceIds: [...caller.readableWorkspaceIds],
      range: readUsageRange(query, 'starting_on', 'ending_before'),
    });
    return [
      {
        customer_id: caller.organizationId,
        billable_metric_id: metric.id,
        billable_metric_name: metric.name,
        start_timestamp: formatUsageTime(usage.startSeconds),
        end_timestamp: formatUsageTime(usage.endSeconds),
        value: usage.traces,
        groups: usage.byWorkspace,
      },
    ];
  },
});

export const billingOperations = [getGranularUsage, exportGranularUsage, getOrganizationUsage];
