import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { pause } from '../../infra/timeouts/backoff.ts';

/** Rows and number of inserts of run events so far, from the metrics of the process at `url`. */
export async function insertBatchesSoFar(url: string): Promise<{ rows: number; count: number }> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const value = (name: string) =>
    Number(
      new RegExp(`^runlake_sink_insert_batch_rows_${name}\\{table="run_events"\\} (\\S+)`, 'm').exec(text)?.[1] ?? 0,
    );
  return { rows: value('sum'), count: value('count') };
}

/** Longer than a turn of any bench: only a sink that does not store takes as long. */
const maxMs = 600_000;

/** Waits until the process at `url` has inserted `rows` rows of run events in all. */
export async function untilInserted(url: string, rows: number): Promise<void> {
  await polled('rows to be inserted', 20, async () => (await insertBatchesSoFar(url)).rows >= rows);
}

/** Polls at regular intervals, which `until` of the tests does not. @throws if it takes longer than any turn. */
export async function polled(what: string, everyMs: number, holds: () => Promise<boolean>): Promise<void> {
  for (const endMs = performance.now() + maxMs; !(await holds()); await pause(everyMs))
    if (performance.now() > endMs) throw new Error(`waited ${maxMs} ms for ${what}`);
}

/** Visible rows of a workspace. */
export async function visibleRuns(clickhouse: ClickHouse, tenantId: string): Promise<number> {
  const [row] = await clickhouse.query<{ n: number }>({
    name: 'bench-visible',
    sql: 'SELECT count() AS n FROM runs WHERE tenant_id = {tenantId:UUID}',
    params: { tenantId },
  });
  return row!.n;
}
