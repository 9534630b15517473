import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';

/** Rows and number of the inserts into `runs` so far, as the metrics of the process at `url` tell. */
export async function cutsSoFar(url: string): Promise<{ rows: number; count: number }> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const value = (name: string) =>
    Number(new RegExp(`^runlake_sink_cut_rows_${name}\\{table="runs"\\} (\\S+)`, 'm').exec(text)?.[1] ?? 0);
  return { rows: value('sum'), count: value('count') };
}

/** Rows of a workspace that can be read now. */
export async function visibleRuns(warehouse: Warehouse, tenantId: string): Promise<number> {
  const [row] = await warehouse.query<{ n: number }>({
    name: 'bench-visible',
    sql: 'SELECT count() AS n FROM runs WHERE tenant_id = {tenantId:UUID}',
    params: { tenantId },
  });
  return row!.n;
}
