import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import type { TenantTrace } from '../ingest/run-event/run-event.ts';
import { locateRun } from '../runs/locate-run.ts';
import { type Lifetime, parseTierNumber } from './lifetimes.ts';

/** Retention change requested after the trace was stored: extended or deleted. */
export interface TraceMark extends TenantTrace {
  /** New lifetime of a trace whose retention was extended. */
  readonly lifetime: Lifetime;
  readonly isDeleted: boolean;
}

/**
 * Interval at which a sink checks whether there are any marks. Until a sink has found the first mark, it stores late
 * events of the trace as before; the second run of `change-traces.ts` corrects them.
 */
const checkIntervalMs = 5_000;

/**
 * Reads `trace_marks` for the events of each batch. If there are no marks, this costs one small query every five
 * seconds.
 */
export class TraceMarks {
  readonly #clickhouse: ClickHouse;
  #hasMarks = false;
  #checkedAtMs = Number.NEGATIVE_INFINITY;

  constructor(clickhouse: ClickHouse) {
    this.#clickhouse = clickhouse;
  }

  /** Returns the marks of `traces`; traces without a mark are omitted. @throws errors of ClickHouse. */
  async of(traces: readonly TenantTrace[]): Promise<TraceMark[]> {
    return traces.length > 0 && (await this.hasAnyMark()) ? readMarks(this.#clickhouse, traces) : [];
  }

  /** Returns whether there is any mark. @throws errors of ClickHouse. */
  async hasAnyMark(): Promise<boolean> {
    if (this.#hasMarks || performance.now() - this.#checkedAtMs < checkIntervalMs) return this.#hasMarks;
    const found = await this.#clickhouse.query({
      name: 'check-trace-marks',
      sql: 'SELECT 1 FROM trace_marks LIMIT 1',
    });
    this.#checkedAtMs = performance.now();
    this.#hasMarks = found.length > 0;
    return this.#hasMarks;
  }
}

async function readMarks(clickhouse: ClickHouse, traces: readonly TenantTrace[]): Promise<TraceMark[]> {
  const rows = await clickhouse.query<{
    tenant_id: string;
    trace_id: string;
    tier: number;
    expires: number;
    deleted: number;
  }>({
    name: 'read-trace-marks',
    settings: lookupSettings,
    sql: `SELECT tenant_id, trace_id, max(trace_tier) AS tier, toUnixTimestamp(max(expires_at)) AS expires,
            max(isNotNull(deleted_at)) AS deleted
          FROM trace_marks WHERE (tenant_id, trace_id) IN keys GROUP BY tenant_id, trace_id`,
    externalTable: {
      name: 'keys',
      structure: 'tenant_id UUID, trace_id UUID',
      rows: traces.map(({ tenantId, traceId }) => [tenantId, traceId]),
    },
  });
  return rows.map(({ tenant_id: tenantId, trace_id: traceId, tier, expires, deleted }) => ({
    tenantId,
    traceId,
    lifetime: { tier: parseTierNumber(tier), expiresAtSeconds: expires },
    isDeleted: deleted === 1,
  }));
}

/**
 * Whether a run belongs to a deleted trace: the one that it is stored under, or `traceId`. A run that is not stored any
 * more has a mark of its own.
 *
 * @throws errors of ClickHouse.
 */
export async function isRunDeleted(
  clickhouse: ClickHouse,
  {
    tenantId,
    runId,
    traceId,
  }: { readonly tenantId: string; readonly runId: string; readonly traceId?: string | undefined },
): Promise<boolean> {
  const located = await locateRun(clickhouse, tenantId, runId);
  const traceIds = [runId, traceId, located?.traceId].filter((id) => id !== undefined);
  const marks = await readMarks(
    clickhouse,
    traceIds.map((id) => ({ tenantId, traceId: id })),
  );
  return marks.some(({ isDeleted }) => isDeleted);
}
