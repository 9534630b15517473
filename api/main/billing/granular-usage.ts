import { Type } from 'typebox';
import { granularUsage } from '../../../pipelines/usage/granular-usage.ts';
import { optional } from '../../server/formats.ts';
import { Answer, defineOperation } from '../../server/operation.ts';
import { warehouseErrors } from '../../server/operation-errors.ts';
import { GranularUsageQuery, granularUsageRequest, unsupportedUsageParameters } from './granular-usage-query.ts';
import { usageJson } from './usage-json.ts';

const Name = optional(Type.String());

const GranularUsageResponse = Type.Object({
  stride: Type.Object(
    { days: Type.Integer(), hours: Type.Integer() },
    { description: 'The size of a bucket; it follows from the length of the range.' },
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
        { description: 'Only the keys of the grouping, with the names of today.' },
      ),
      traces: Type.Integer(),
    }),
    { description: 'By bucket, then by dimension; empty buckets are left out.' },
  ),
});

/** GET /orgs/current/billing/granular-usage. SPEC.md 2.5 and 4.2. */
export const getGranularUsage = defineOperation({
  operationId: 'getGranularUsage',
  method: 'GET',
  path: '/orgs/current/billing/granular-usage',
  tag: 'billing',
  summary: 'Traces per time bucket, by workspace, project, user or API key',
  description:
    'A trace counts once, in the hour of its start. Whole hours are counted, from that of start_time to that of end_time. ' +
    'Below one day buckets are hours, up to 31 days days, up to 93 weeks, up to 366 months of 30 days, above years of 365; ' +
    'from days on they begin at midnight UTC of the day of start_time. Every grouping and every stride sums to the same total.',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  unsupported: { query: unsupportedUsageParameters },
  errors: warehouseErrors,
  schema: { query: GranularUsageQuery, response: { 200: GranularUsageResponse } },
  handler: async ({ query, caller, services }) => {
    const request = granularUsageRequest(query, caller, services.config.maxUsageWorkspaces);
    const usage = await granularUsage(services, request);
    return new Answer({
      headers: { 'content-type': 'application/json; charset=utf-8' },
      body: usageJson(usage),
    });
  },
});
