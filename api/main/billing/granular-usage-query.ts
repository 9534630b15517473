import { type Static, Type } from 'typebox';
import { type FieldError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import type { GranularUsageRequest } from '../../../pipelines/usage/granular-usage.ts';
import { groupings } from '../../../pipelines/usage/grouping.ts';
import { UsageTime, usageRange } from './usage-time.ts';

/** Maximum number of workspace ids in one usage request: they go into one query, and a URL holds few more. */
const maxWorkspaceIds = 200;

/** Query parameters of granular usage, for JSON and CSV. SPEC.md 4.2. */
export const GranularUsageQuery = Type.Object({
  start_time: UsageTime('Start of the range, rounded down to the hour.'),
  end_time: UsageTime('End of the range, after start_time, rounded up to the hour.'),
  workspace_ids: Type.Array(Type.String(), {
    minItems: 1,
    description:
      `Workspaces to count, as a repeated parameter or separated by commas, at most ${maxWorkspaceIds}. ` +
      'Workspaces that the API key cannot read, or of other organisations, are ignored.',
  }),
  group_by: Type.Union(
    groupings.map((grouping) => Type.Literal(grouping)),
    { default: 'workspace', description: 'Dimension by which the traces of a bucket are grouped.' },
  ),
  kind: Type.Optional(Type.String({ description: 'Only `traces` is supported.', default: 'traces' })),
});

/** Parameters of newer clients. */
export const unsupportedUsageParameters = ['trace_tier'] as const;

/**
 * Converts the parameters to a usage request, restricted to workspaces that the caller can read.
 * @throws INVALID_REQUEST, PARAMETER_NOT_SUPPORTED
 */
export function granularUsageRequest(query: Static<typeof GranularUsageQuery>, caller: Caller): GranularUsageRequest {
  if (query.kind !== undefined && query.kind !== 'traces')
    throw runlakeError('PARAMETER_NOT_SUPPORTED', { parameter: 'kind' });
  const ids = workspaceIds(query.workspace_ids);
  return {
    organizationId: caller.organizationId,
    workspaceIds: [...new Set(ids)].filter((id) => caller.readableWorkspaceIds.has(id)),
    range: usageRange(query, 'start_time', 'end_time'),
    groupBy: query.group_by,
  };
}

const uuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

function workspaceIds(values: readonly string[]): string[] {
  const ids = values.flatMap((value) => value.split(',')).map((id) => id.trim().toLowerCase());
  const named = ids.filter((id) => id !== '');
  const fields: FieldError[] = named.flatMap((id, index) =>
    uuid.test(id) ? [] : [{ loc: ['query', 'workspace_ids', index], msg: 'must be a UUID', type: 'uuid_format' }],
  );
  if (named.length === 0 || named.length > maxWorkspaceIds) {
    const msg = `must name between 1 and ${maxWorkspaceIds} workspaces, not ${named.length}`;
    fields.splice(0, fields.length, { loc: ['query', 'workspace_ids'], msg, type: 'item_count' });
  }
  if (fields.length > 0) throw runlakeError('INVALID_REQUEST', {}, { fields: fields.slice(0, 8) });
  return named;
}
