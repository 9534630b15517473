import { Type } from 'typebox';
import { granularUsage, usageRows } from '../../../pipelines/usage/granular-usage.ts';
import { Answer, defineOperation } from '../../server/operation.ts';
import { clickhouseErrors } from '../../server/operation-errors.ts';
import { GranularUsageQuery, granularUsageRequest, unsupportedUsageParameters } from './granular-usage-query.ts';
import { usageCsv } from './usage-csv.ts';
import { formatUsageTime } from './usage-time.ts';

/** GET /orgs/current/billing/granular-usage/export. SPEC.md 2.5 and 4.2. */
export const exportGranularUsage = defineOperation({
  operationId: 'exportGranularUsage',
  method: 'GET',
  path: '/orgs/current/billing/granular-usage/export',
  tag: 'billing',
  summary: 'Export granular usage as CSV',
  description:
    'The rows of granular usage, with the end of each bucket; the last bucket ends where counting ends. Lines end with CRLF ' +
    '(RFC 4180). All columns are present; those of other groupings are empty. An apostrophe precedes text that a spreadsheet ' +
    'would evaluate as a formula.',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  unsupported: { query: unsupportedUsageParameters },
  errors: clickhouseErrors,
  schema: {
    query: GranularUsageQuery,
    response: { 200: Type.String({ description: 'The CSV file.' }) },
    produces: 'text/csv; charset=utf-8',
  },
  handler: async ({ query, caller, services }) => {
    const request = granularUsageRequest(query, caller);
    const usage = await granularUsage(services, request);
    const [from, to] = [request.range.startMs, request.range.endMs].map((ms) =>
      formatUsageTime(Math.floor(ms / 1_000)).slice(0, 10),
    );
    return new Answer({
      headers: {
        'content-type': 'text/csv; charset=utf-8',
        'content-disposition': `attachment; filename="usage-by-${request.groupBy}-${from}-to-${to}.csv"`,
      },
      body: usageCsv(usageRows(usage)),
    });
  },
});
