import { Type } from 'typebox';
import { granularUsage } from '../../../pipelines/usage/granular-usage.ts';
import { optional } from '../../server/formats.ts';
import { Answer, defineOperation } from '../../server/operation.ts';
import { clickhouseErrors } from '../../server/operation-errors.ts';
import { GranularUsageQuery, granularUsageRequest, unsupportedUsageParameters } from './granular-usage-query.ts';
import { usageJson } from './usage-json.ts';

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
      traces: Type.Integer(),
    }),
    { description: 'Ordered by bucket, then by dimension; without empty buckets.' },
  ),
});

/** GET /orgs/current/billing/granular-usage. SPEC.md 2.5 and 4.2. */
export const getGranularUsage = defineOperation({
  operationId: 'getGranularUsage',
  method: 'GET',
  path: '/orgs/current/billing/granular-usage',
  tag: 'billing',
  summary: 'Get traces per time bucket, by workspace, project, user or API key',
  description:
    'A trace counts once, in the hour of its start. The range is widened to whole hours. Buckets are one hour for ranges ' +
    'below one day, one day up to 31 days, one week up to 93 days, 30 days up to 366 days, and 365 days above. Buckets of days ' +
    'begin at midnight UTC of the day of start_time. All groupings and bucket sizes have the same total.',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  unsupported: { query: unsupportedUsageParameters },
  errors: clickhouseErrors,
  schema: { query: GranularUsageQuery, response: { 200: GranularUsageResponse } },
  handler: async ({ query, caller, services }) => {
    const request = granularUsageRequest(query, caller);
    const usage = await granularUsage(services, request);
    return new Answer({
      headers: { 'content-type': 'application/json; charset=utf-8' },
      body: usageJson(usage),
    });
  },
});
