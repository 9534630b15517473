import { Type } from 'typebox';
import { organizationUsage } from '../../../pipelines/usage/organization-usage.ts';
import { nullable } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';
import { clickhouseErrors } from '../../server/operation-errors.ts';
import { formatUsageTime, UsageTime, usageRange } from './usage-time.ts';

const metric = { id: 'traces', name: 'Traces' } as const;

/** GET /orgs/current/billing/usage: the older report without time buckets, which tool servers read. */
export const getOrganizationUsage = defineOperation({
  operationId: 'getOrganizationUsage',
  method: 'GET',
  path: '/orgs/current/billing/usage',
  tag: 'billing',
  summary: 'Get the usage of the organisation, by workspace',
  description:
    'One metric: the traces of the whole range, equal to the sum of granular usage. Counts only workspaces that the API key can ' +
    'read; `groups` omits workspaces without traces.',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  errors: clickhouseErrors,
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
          groups: nullable(Type.Record(Type.String(), Type.Number()), {
            description: 'Traces by workspace id.',
          }),
        }),
      ),
    },
  },
  handler: async ({ query, caller, services }) => {
    const usage = await organizationUsage(services, {
      organizationId: caller.organizationId,
      workspaceIds: [...caller.readableWorkspaceIds],
      range: usageRange(query, 'starting_on', 'ending_before'),
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
