import { RecentMap } from '../../../infra/cache/recent-map.ts';
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../../infra/clickhouse/settings.ts';
import {
  copyRunKey,
  copyWithStartTime,
  isPatch,
  readRunId,
  readStartTimeMicros,
  readTenantId,
  readTraceId,
  runKeyWords,
} from '../run-event/run-event.ts';
import type { TraceLocation } from './assign-trace-locations.ts';
import type { ValidRunEvent } from './split-into-batches.ts';

/** Minimum number of runs whose key time a process remembers. A process holds at most twice as many, in 26 MB. */
const minRememberedRuns = 200_000;

/**
 * Assigns all events of a run the same key time, which is part of the sorting key of `runs`: the key time of its first
 * event.
 *
 * Invariant: events of a run that pass through one partition are stored under one key time. A sink that does not
 * remember the run reads the stored time if there may be one: for patches, and for posts of a trace that was stored
 * before this process consumed the partition. Any other post is the first event of its run, unless the run was
 * forgotten, which takes more than {@link minRememberedRuns} other runs.
 */
export class KeyTimes {
  readonly #known = new RecentMap({ minEntries: minRememberedRuns, wordsPerKey: runKeyWords, numbersPerValue: 1 });

  /**
   * Returns `events` in their order. Events whose time differs from the key time of their run are replaced by copies.
   *
   * @param traces Locations of the traces of the events, by `readTraceKey`.
   */
  async assign(
    events: readonly ValidRunEvent[],
    traces: ReadonlyMap<string, TraceLocation>,
    clickhouse: ClickHouse,
  ): Promise<ValidRunEvent[]> {
    const keys = new Uint32Array(events.length * runKeyWords);
    const unknown: { readonly value: Buffer; readonly at: number }[] = [];
    for (const [index, { record, traceKey }] of events.entries()) {
      const { value } = record;
      const at = index * runKeyWords;
      copyRunKey(value, keys, at);
      if (this.#known.get(keys, at) !== undefined) continue;
      if (isPatch(value) || traces.get(traceKey)?.wasRead) unknown.push({ value, at });
    }
    if (unknown.length > 0) {
      const stored = await readKeyTimes(
        clickhouse,
        unknown.map(({ value }) => value),
      );
      for (const { value, at } of unknown) {
        const micros = stored.get(nameRun(readTenantId(value), readTraceId(value), readRunId(value)));
        if (micros !== undefined) this.#known.set(keys, at, micros);
      }
    }
    return events.map((event, index) => this.#assignOne(event, keys, index * runKeyWords));
  }

  #assignOne(event: ValidRunEvent, keys: Uint32Array, at: number): ValidRunEvent {
    const { record, original = record } = event;
    const own = readStartTimeMicros(record.value);
    const known = this.#known.get(keys, at);
    if (known === undefined) this.#known.set(keys, at, own);
    if (known === undefined || known === own) return event;
    return { ...event, record: { ...record, value: copyWithStartTime(record.value, known) }, original };
  }
}

const nameRun = (...ids: readonly [tenantId: string, traceId: string, runId: string]) => ids.join(' ');

/**
 * Reads the stored key times of the runs of `events`, by {@link nameRun}. If a run has several key times, returns the
 * key time of the event that was accepted first.
 */
async function readKeyTimes(clickhouse: ClickHouse, events: readonly Buffer[]): Promise<ReadonlyMap<string, number>> {
  const rows = await clickhouse.query<{ tenant_id: string; id: string; trace_id: string; micros: number }>({
    name: 'find-key-times',
    settings: lookupSettings,
    sql: `SELECT tenant_id, id, (min(pick) AS first).3 AS trace_id, toUnixTimestamp64Micro(first.2) AS micros
          FROM run_locator WHERE (tenant_id, id) IN keys GROUP BY tenant_id, id`,
    externalTable: {
      name: 'keys',
      structure: 'tenant_id UUID, id UUID',
      rows: events.map((value) => [readTenantId(value), readRunId(value)]),
    },
  });
  return new Map(rows.map((row) => [nameRun(row.tenant_id, row.trace_id, row.id), row.micros]));
}
