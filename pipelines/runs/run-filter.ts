import type { QueryParameter } from '../../infra/clickhouse/clickhouse.ts';
import type { RunType } from '../ingest/run-event/run-event.ts';
import { allTimes } from './run-key.ts';

/** Conditions of a query on runs, joined by AND; absent fields add no condition. */
export interface RunFilter {
  readonly traceId?: string | undefined;
  readonly parentRunId?: string | undefined;
  readonly runType?: RunType | undefined;
  /** Whether the run is the root of its trace. */
  readonly isRoot?: boolean | undefined;
  readonly hasError?: boolean | undefined;
  /** Key time, inclusive. */
  readonly startedFromMicros?: number | undefined;
  /** End of the run, inclusive. A run without an end does not match. */
  readonly endedUntilMicros?: number | undefined;
  readonly referenceExampleIds?: readonly string[] | undefined;
}

/** Conditions of a WHERE clause, to be joined by AND, and the values that they bind. */
export interface Conditions {
  readonly sql: readonly string[];
  readonly params: Readonly<Record<string, QueryParameter>>;
}

/** Type of a run for which no event has stated one yet. */
export const defaultRunType: RunType = 'chain';

/** Conditions on the key. They have the same value for all stored rows of a run, so they are valid without `FINAL`. */
export function keyConditions({ traceId }: RunFilter): Conditions {
  const sql: string[] = [];
  const params: Record<string, QueryParameter> = {};
  if (traceId !== undefined) {
    sql.push('trace_id = {trace:UUID}');
    params.trace = traceId;
  }
  return { sql, params };
}

/** Conditions on values, which require `FINAL`. Excludes deleted runs. */
export function valueConditions(filter: RunFilter): Conditions {
  const { isRoot, parentRunId, runType, hasError, endedUntilMicros, referenceExampleIds } = filter;
  const sql = ['isNull(deleted_at)'];
  const params: Record<string, QueryParameter> = {};
  if (isRoot !== undefined) {
    // The id of an OpenTelemetry root span differs from its trace id.
    const root = '(id = trace_id OR isNull(coalesce(patch_parent_run_id, post_parent_run_id)))';
    sql.push(isRoot ? root : `NOT ${root}`);
  }
  if (parentRunId !== undefined) {
    sql.push('coalesce(patch_parent_run_id, post_parent_run_id) = {parent:UUID}');
    params.parent = parentRunId;
  }
  if (runType !== undefined) {
    sql.push(`coalesce(patch_run_type, post_run_type, '${defaultRunType}') = {run_type:String}`);
    params.run_type = runType;
  }
  if (hasError !== undefined) {
    sql.push(`${hasError ? 'isNotNull' : 'isNull'}(coalesce(patch_error, post_error))`);
  }
  if (endedUntilMicros !== undefined) {
    sql.push('coalesce(patch_ended_at, post_ended_at) <= fromUnixTimestamp64Micro({ended_until:Int64})');
    params.ended_until = Math.min(Math.max(endedUntilMicros, 0), allTimes.untilMicrosExclusive);
  }
  if (referenceExampleIds !== undefined) {
    sql.push('coalesce(patch_reference_example_id, post_reference_example_id) IN {examples:Array(UUID)}');
    params.examples = referenceExampleIds;
  }
  return { sql, params };
}
