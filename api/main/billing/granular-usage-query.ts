import { type Static, Type } from 'typebox';
import { type FieldFault, fault } from '../../../infra/errors/runlake-error.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import type { GranularUsageRequest } from '../../../pipelines/usage/granular-usage.ts';
import { groupings } from '../../../pipelines/usage/grouping.ts';
import { UsageTime, usageRange } from './usage-time.ts';

/** The parameters of granular usage, the same for JSON and CSV. SPEC.md 4.2. */
export const GranularUsageQuery = Type.Object({
  start_time: UsageTime('Start of the range. The hour that it lies in is counted whole.'),
  end_time: UsageTime('End of the range, after start_time. The hour that it lies in is counted whole.'),
  workspace_ids: Type.Array(Type.String(), {
    minItems: 1,
    description:
      'Workspaces to count: the key repeated, or ids with commas between, at most 200 (RUNLAKE_MAX_USAGE_WORKSPACES). ' +
      'Those that the API key cannot read, or that are not of its organisation, are left out.',
  }),
  group_by: Type.Union(
    groupings.map((grouping) => Type.Literal(grouping)),
    { default: 'workspace', description: 'What the traces of a bucket are grouped by.' },
  ),
  kind: Type.Optional(Type.String({ description: 'Only `traces` is built.', default: 'traces' })),
});

/** Parameters that newer clients know. */
export const unsupportedUsageParameters = ['trace_tier'] as const;

/**
 * The request behind the parameters, narrowed to what the caller may read.
 * @throws INVALID_REQUEST, PARAMETER_NOT_SUPPORTED
 */
export function granularUsageRequest(
  query: Static<typeof GranularUsageQuery>,
  caller: Caller,
  maxWorkspaces: number,
): GranularUsageRequest {
  if (query.kind !== undefined && query.kind !== 'traces')
    throw fault('PARAMETER_NOT_SUPPORTED', { parameter: 'kind' });
  const ids = workspaceIds(query.workspace_ids, maxWorkspaces);
  return {
    organizationId: caller.organizationId,
    workspaceIds: [...new Set(ids)].filter((id) => caller.readableWorkspaceIds.has(id)),
    range: usageRange(query, 'start_time', 'end_time'),
    groupBy: query.group_by,
  };
}

const uuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

function workspaceIds(values: readonly string[], most: number): string[] {
  const ids = values.flatMap((value) => value.split(',')).map((id) => id.trim().toLowerCase());
  const named = ids.filter((id) => id !== '');
  const fields: FieldFault[] = named.flatMap((id, index) =>
    uuid.test(id) ? [] : [{ loc: ['query', 'workspace_ids', index], msg: 'must be a UUID', type: 'uuid_format' }],
  );
  if (named.length === 0 || named.length > most) {
    const msg = `must name between 1 and ${most} workspaces (RUNLAKE_MAX_USAGE_WORKSPACES), not ${named.length}`;
    fields.splice(0, fields.length, { loc: ['query', 'workspace_ids'], msg, type: 'item_count' });
  }
  if (fields.length > 0) throw fault('INVALID_REQUEST', {}, { fields: fields.slice(0, 8) });
  return named;
}
