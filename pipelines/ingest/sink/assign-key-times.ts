import { RecentMap } from '../../../infra/cache/recent-map.ts';
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import {
  isPatch,
  readRunId,
  readRunKey,
  readStartTimeMicros,
  readTenantId,
  readTraceKey,
  runKey,
  withStartTime,
} from '../run-event/run-event.ts';
import type { TraceLocation } from './assign-trace-locations.ts';
import type { ValidRecord } from './split-into-batches.ts';

/** Minimum number of runs whose key time a process remembers. It holds at most twice as many, about 80 MB. */
const minRememberedRuns = 200_000;

/**
 * Assigns the events of a run one key time, which is part of the sorting key of `runs`: that of its first event.
 *
 * Invariant: events of a run that pass one partition are stored under one key time. A sink that does not remember the
 * run reads the stored time, if there may be one: for patches, and for posts of a trace that was stored before this
 * process had the partition. Any other post is the first event of its run, unless the run was forgotten, which takes
 * more than {@link minRememberedRuns} other runs.
 */
export class KeyTimes {
  readonly #known = new RecentMap<number>(minRememberedRuns);

  /**
   * Returns `events` in their order. Those with another time than their run are replaced by copies.
   *
   * @param traces locations of their traces, by `readTraceKey`.
   */
  async assign<R extends ValidRecord>(
    events: readonly R[],
    traces: ReadonlyMap<string, TraceLocation>,
    clickhouse: ClickHouse,
  ): Promise<R[]> {
    const unknown = new Map<string, readonly [tenantId: string, runId: string]>();
    for (const { record } of events) {
      const { value } = record;
      const key = readRunKey(value);
      if (this.#known.get(key) !== undefined) continue;
      if (isPatch(value) || traces.get(readTraceKey(value))?.wasRead) {
        unknown.set(key, [readTenantId(value), readRunId(value)]);
      }
    }
    for (const [key, micros] of await readKeyTimes(clickhouse, [...unknown.values()])) {
      if (unknown.has(key)) this.#known.set(key, micros);
    }
    return events.map((event) => this.#assignOne(event));
  }

  #assignOne<R extends ValidRecord>(event: R): R {
    const { record, original = record } = event;
    const key = readRunKey(record.value);
    const own = readStartTimeMicros(record.value);
    const known = this.#known.get(key);
    if (known === undefined) this.#known.set(key, own);
    if (known === undefined || known === own) return event;
    return { ...event, record: { ...record, value: withStartTime(record.value, known) }, original };
  }
}

/**
 * Reads the stored key times of runs, by run key. If a run has several, returns that of the event that was accepted
 * first.
 */
async function readKeyTimes(
  clickhouse: ClickHouse,
  runs: readonly (readonly [tenantId: string, runId: string])[],
): Promise<(readonly [key: string, micros: number])[]> {
  if (runs.length === 0) return [];
  const rows = await clickhouse.query<{ tenant_id: string; id: string; trace_id: string; micros: number }>({
    name: 'find-key-times',
    sql: `SELECT tenant_id, id, (min(pick) AS first).3 AS trace_id, toUnixTimestamp64Micro(first.2) AS micros
          FROM run_locator WHERE (tenant_id, id) IN keys GROUP BY tenant_id, id`,
    external: { name: 'keys', structure: 'tenant_id UUID, id UUID', rows: runs },
  });
  return rows.map((row) => [runKey(row.tenant_id, row.trace_id, row.id), row.micros]);
}
