import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { buildTraceKey, type TenantTrace } from './run-event/run-event.ts';
import { findTracesWithSeveralLocations, isSettled, settleTrace } from './sink/settle-traces.ts';

/**
 * Time after the last renewal of an entry in which ClickHouse may complete an insert whose sink was killed or has given up.
 * The timeout of an insert is less than a minute.
 */
const lateInsertSeconds = 3_600;
const tracesPerRound = 5_000;

interface ContestedTrace extends TenantTrace {
  /** Whether no insert may be in progress any more. */
  readonly isOver: boolean;
}

/**
 * Settles the contested traces that have several locations, for rows that ClickHouse has stored late
 * (`sink/settle-traces.ts`). When no more rows are expected, deletes the entries of traces that have one location: nothing
 * was stored under another one.
 *
 * @throws errors of the stores; the next execution continues.
 */
export async function settleContestedTraces(
  deps: { readonly clickhouse: ClickHouse; readonly database: Database },
  signal?: AbortSignal,
): Promise<void> {
  const { clickhouse, database } = deps;
  for (let after: TenantTrace | undefined, isLast = false; !isLast; ) {
    const traces: ContestedTrace[] = await readRecentTraces(database, after);
    isLast = traces.length < tracesPerRound;
    after = traces.at(-1);
    const several = await findTracesWithSeveralLocations(clickhouse, traces);
    const keys = new Set(several.map(({ tenantId, traceId }) => buildTraceKey(tenantId, traceId)));
    const hasSeveral = ({ tenantId, traceId }: TenantTrace) => keys.has(buildTraceKey(tenantId, traceId));
    for (const trace of traces.filter(hasSeveral)) {
      signal?.throwIfAborted();
      // Before that, hours are marked even if nothing is misplaced: an earlier execution may have died after its move.
      if (trace.isOver && (await isSettled(clickhouse, trace))) continue;
      await settleTrace(deps, trace, async () => undefined);
    }
    const undisputed = traces.filter((each) => each.isOver && !hasSeveral(each));
    if (undisputed.length === 0) continue;
    await database.execute(
      `DELETE FROM contested_traces WHERE (tenant_id, trace_id) IN (SELECT * FROM unnest($1::uuid[], $2::uuid[]))
         AND noticed_at <= now() - make_interval(secs => $3)`,
      [undisputed.map(({ tenantId }) => tenantId), undisputed.map(({ traceId }) => traceId), lateInsertSeconds],
    );
  }
}

/** Reads traces whose rows may be stored late, or might have been within the last day. */
function readRecentTraces(database: Database, after: TenantTrace | undefined): Promise<ContestedTrace[]> {
  return database.query<ContestedTrace>(
    `SELECT tenant_id AS "tenantId", trace_id AS "traceId", noticed_at <= now() - make_interval(secs => $1) AS "isOver"
     FROM contested_traces
     WHERE noticed_at > now() - interval '1 day' AND ($2::uuid IS NULL OR (tenant_id, trace_id) > ($2, $3::uuid))
     ORDER BY tenant_id, trace_id LIMIT ${tracesPerRound}`,
    [lateInsertSeconds, after?.tenantId ?? null, after?.traceId ?? null],
  );
}
