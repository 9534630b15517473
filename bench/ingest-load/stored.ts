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

/** Waits until the process at `url` has inserted `rows` rows of run events in all. */
export async function untilInserted(url: string, rows: number): Promise<void> {
  while ((await insertBatchesSoFar(url)).rows < rows) await pause(20);
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
