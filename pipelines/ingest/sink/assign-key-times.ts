import { RecentMap } from '../../../infra/cache/recent-map.ts';
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../../infra/clickhouse/settings.ts';
import type { LogBatch } from '../../../infra/event-log/event-log.ts';
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
import { minRememberedEvents } from './event-versions.ts';
import type { ValidRunEvent } from './split-into-batches.ts';

/** Minimum number of runs whose key time a process remembers. A process holds at most twice as many, in 29 MB. */
const minRememberedRuns = 200_000;

/**
 * Assigns all events of a run the same key time, which is part of the sorting key of `runs`: the key time of its first
 * event.
 *
 * Invariant: events of a run that pass through one partition are stored under one key time. A sink that does not
 * remember the run reads the stored time if there may be one: for patches, and for posts of a trace that was stored
 * before this process consumed the partition. Any other post is the first event of its run, unless the run was
 * forgotten, which takes more than {@link minRememberedRuns} other runs.
 *
 * It also finds out whether the process remembers all events of a run (`event-versions.ts`): if it has handled its first
 * event, the records since then without a gap, and not more than {@link minRememberedEvents} events.
 */
export class KeyTimes {
  /** Run to key time and, if this process has handled its first event, the number of that event, else -1. */
  readonly #known: RecentMap;
  /** Number of events that were assigned. */
  #events = 0;
  /** Value of `#events` at the last gap in the records of a partition. */
  #eventsBeforeGap = 0;
  /** The last batch of each partition: its first offset and, if it was stored, the first one after it. */
  readonly #lastBatches = new Map<number, { readonly first: number; readonly next?: number }>();

  constructor(minRuns = minRememberedRuns) {
    this.#known = new RecentMap({ minEntries: minRuns, wordsPerKey: runKeyWords, numbersPerValue: 2 });
  }

  /**
   * Call this method for each batch of a log that several processes read. If the batch does not begin where the previous
   * one of its partition began (because it is delivered again) or, if that was stored, ended, another process may have
   * handled the records in between; it returns true.
   */
  noteBatch({ partition, records }: LogBatch): boolean {
    const first = records[0]?.offset ?? 0;
    const last = this.#lastBatches.get(partition);
    const isAfterGap = first !== last?.first && first !== last?.next;
    if (isAfterGap) this.#eventsBeforeGap = this.#events;
    this.#lastBatches.set(partition, { first });
    return isAfterGap;
  }

  /** Call this method after all steps for a batch, so that a batch of which steps have failed is not taken for a handled one. */
  noteStored({ partition, records }: LogBatch): void {
    this.#lastBatches.set(partition, {
      first: records[0]?.offset ?? 0,
      next: (records.at(-1)?.offset ?? -1) + 1,
    });
  }

  /**
   * Sets `mayBeRepeat` of the events, and returns them in their order. Events whose time differs from the key time of their
   * run are replaced by copies.
   *
   * @param traces Locations of the traces of the events, by `readTraceKey`.
   */
  async assign(
    events: readonly ValidRunEvent[],
    traces: ReadonlyMap<string, TraceLocation>,
    clickhouse: ClickHouse,
  ): Promise<ValidRunEvent[]> {
    const keys = new Uint32Array(events.length * runKeyWords);
    // Key time and number of the first event, by event; a number of 0 is unknown. The memory may forget a run while others
    // of the batch are added to it.
    const remembered = new Float64Array(events.length * 2);
    const unknown: { readonly value: Buffer; readonly at: number }[] = [];
    for (const [index, { record, traceKey }] of events.entries()) {
      const { value } = record;
      const at = index * runKeyWords;
      copyRunKey(value, keys, at);
      const micros = this.#known.get(keys, at);
      if (micros !== undefined) remembered.set([micros, this.#known.get(keys, at, 1) as number], index * 2);
      else if (isPatch(value) || traces.get(traceKey)?.wasRead) unknown.push({ value, at });
    }
    if (unknown.length > 0) {
      const stored = await readKeyTimes(
        clickhouse,
        unknown.map(({ value }) => value),
      );
      for (const { value, at } of unknown) {
        const micros = stored.get(nameRun(readTenantId(value), readTraceId(value), readRunId(value)));
        if (micros !== undefined) this.#known.set(keys, at, micros, -1);
      }
    }
    const wereUnknown = new Set(unknown.map(({ at }) => at));
    return events.map((event, index) => {
      const at = index * runKeyWords;
      this.#events++;
      let micros = remembered[index * 2] as number;
      let firstEvent = remembered[index * 2 + 1] as number;
      if (firstEvent === 0) {
        if (this.#known.get(keys, at) === undefined) {
          this.#known.set(keys, at, readStartTimeMicros(event.record.value), wereUnknown.has(at) ? -1 : this.#events);
        }
        micros = this.#known.get(keys, at) as number;
        firstEvent = this.#known.get(keys, at, 1) as number;
      }
      event.mayBeRepeat = firstEvent <= Math.max(this.#eventsBeforeGap, this.#events - minRememberedEvents);
      return moveToKeyTime(event, micros);
    });
  }
}

function moveToKeyTime(event: ValidRunEvent, micros: number): ValidRunEvent {
  const { record, original = record } = event;
  if (readStartTimeMicros(record.value) === micros) return event;
  return { ...event, record: { ...record, value: copyWithStartTime(record.value, micros) }, original };
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
