import { Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import {
  changeUsageLimit,
  deleteUsageLimit,
  findExceededLimit,
  limitTypes,
  listUsageLimits,
  readUsageState,
  setUsageLimit,
} from '../../pipelines/usage/usage-limits.ts';
import { nullable, OneOf, optional, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';

const LimitFields = {
  limit_type: OneOf(limitTypes),
  limit_value: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, description: 'Traces in a month (UTC).' }),
};
const UsageLimit = Type.Object({
  id: Uuid(),
  tenant_id: Uuid({ description: 'Id of the workspace.' }),
  ...LimitFields,
  is_hard: Type.Boolean(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});

const manage = { permission: 'usage-limits:manage', tenantScope: 'workspace' } as const;

export const usageLimitOperations = [
  defineOperation({
    operationId: 'listUsageLimits',
    method: 'GET',
    path: '/usage-limits',
    summary: 'List the usage limits of the workspace',
    access: { permission: 'workspaces:read', tenantScope: 'workspace' },
    schema: { response: { 200: Type.Array(UsageLimit) } },
    handler: async ({ caller, services }) => listUsageLimits(services.database, [caller.workspaceId]),
  }),
  defineOperation({
    operationId: 'listOrganizationUsageLimits',
    method: 'GET',
    path: '/usage-limits/org',
    summary: 'List the usage limits of all workspaces that the key has access to',
    access: { permission: 'organization:read', tenantScope: 'organization' },
    schema: { response: { 200: Type.Array(UsageLimit) } },
    handler: async ({ caller, services }) => listUsageLimits(services.database, [...caller.readableWorkspaceIds]),
  }),
  defineOperation({
    operationId: 'setUsageLimit',
    method: 'PUT',
    path: '/usage-limits',
    summary: 'Set a usage limit of the workspace',
    description:
      'A hard limit refuses runs with 429 once the workspace has that many traces in the month. A soft limit warns in the log and in the ' +
      'header `X-Usage-Warning` of ingest responses. Traces count as in usage reports, some seconds after they arrive.',
    access: manage,
    errors: ['BAD_REQUEST', 'CONFLICT', 'NOT_FOUND'],
    schema: {
      body: Type.Object({
        ...LimitFields,
        limit_type: OneOf([...limitTypes, 'monthly_longlived_traces'], {
          description:
            '`monthly_longlived_traces` is not supported: usage counts the traces of all retention tiers together.',
        }),
        id: optional(Uuid({ description: 'The limit to change. Default: the one of this type and kind.' })),
        is_hard: optional(Type.Boolean({ description: 'Default: true; with `id`, unchanged.' })),
      }),
      response: { 200: UsageLimit },
    },
    handler: async ({ caller, body, services }) => {
      const { id, limit_type, limit_value, is_hard } = body;
      if (limit_type === 'monthly_longlived_traces') {
        const reason =
          'Usage limits of the type `monthly_longlived_traces` are not supported, because usage counts the traces of all retention tiers ' +
          `together. Supported: ${limitTypes.map((type) => `\`${type}\``).join(', ')}.`;
        throw runlakeError('BAD_REQUEST', { reason });
      }
      const { database, usageLimits } = services;
      const limit =
        id == null
          ? await setUsageLimit(database, caller.workspaceId, { limit_type, limit_value, is_hard: is_hard ?? true })
          : await changeUsageLimit(database, caller.workspaceId, { id, limit_value, is_hard: is_hard ?? null });
      usageLimits.forget(caller.workspaceId);
      return limit;
    },
  }),
  defineOperation({
    operationId: 'deleteUsageLimit',
    method: 'DELETE',
    path: '/usage-limits/:usage_limit_id',
    summary: 'Delete a usage limit of the workspace',
    access: manage,
    errors: ['NOT_FOUND'],
    schema: {
      params: Type.Object({ usage_limit_id: Uuid() }),
      response: { 200: Type.Object({ message: Type.String() }) },
    },
    handler: async ({ caller, params, services }) => {
      await deleteUsageLimit(services.database, caller.workspaceId, params.usage_limit_id);
      services.usageLimits.forget(caller.workspaceId);
      return { message: 'Usage limit deleted' };
    },
  }),
  defineOperation({
    operationId: 'getUsageLimitState',
    method: 'GET',
    path: '/workspaces/current/usage_limits',
    summary: 'Get whether the workspace exceeds its usage limits',
    access: { permission: 'workspaces:read', tenantScope: 'workspace' },
    errors: clickhouseErrors,
    schema: {
      response: {
        200: Type.Object({
          in_reject_set: Type.Boolean({ description: 'Whether runs are refused.' }),
          usage_limit_type: nullable(Type.Literal('user_defined_monthly_traces')),
          tenant_limit: nullable(Type.Integer({ description: 'The hard limit.' })),
          soft_limit: nullable(Type.Integer()),
          soft_limit_exceeded: Type.Boolean(),
          monthly_traces: nullable(Type.Integer({ description: 'Traces of this month; null without a limit.' })),
        }),
      },
    },
    handler: async ({ caller, services }) => {
      const state = await readUsageState(services, caller.workspaceId);
      const { hard, soft, used } = state;
      const isHardLimitExceeded = findExceededLimit(state, 'hard') !== undefined;
      return {
        in_reject_set: isHardLimitExceeded,
        usage_limit_type: isHardLimitExceeded ? ('user_defined_monthly_traces' as const) : null,
        tenant_limit: hard ?? null,
        soft_limit: soft ?? null,
        soft_limit_exceeded: findExceededLimit(state, 'soft') !== undefined,
        monthly_traces: hard === undefined && soft === undefined ? null : used,
      };
    },
  }),
];
