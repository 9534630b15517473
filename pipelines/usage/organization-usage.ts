import { type GranularUsageRequest, granularUsage, usageRows } from './granular-usage.ts';
import { planBuckets } from './stride.ts';

export interface OrganizationUsage {
  /** Counted range: whole hours, half-open, in seconds since 1970. */
  readonly startSeconds: number;
  readonly endSeconds: number;
  readonly traces: number;
  /** Traces by workspace id; workspaces without traces are left out. */
  readonly byWorkspace: Readonly<Record<string, number>>;
}

/**
 * Traces of a whole range, by workspace. Equal to the sum over the buckets of {@link granularUsage}.
 *
 * @throws errors of ClickHouse and Postgres.
 */
export async function organizationUsage(
  deps: Parameters<typeof granularUsage>[0],
  request: Omit<GranularUsageRequest, 'groupBy'>,
): Promise<OrganizationUsage> {
  const usage = await granularUsage(deps, { ...request, groupBy: 'workspace' });
  const byWorkspace: Record<string, number> = {};
  let total = 0;
  for (const { dimensions, traces } of usageRows(usage)) {
    const id = String(dimensions.workspace_id);
    byWorkspace[id] = (byWorkspace[id] ?? 0) + traces;
    total += traces;
  }
  const plan = planBuckets(request.range);
  return {
    startSeconds: plan.startInclusiveSeconds,
    endSeconds: plan.endExclusiveSeconds,
    traces: total,
    byWorkspace,
  };
}
