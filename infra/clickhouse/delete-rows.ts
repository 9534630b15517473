import { isRunlakeError } from '../errors/runlake-error.ts';
import type { ClickHouse, Command } from './clickhouse.ts';
import { groupByShard } from './layout.ts';

/** Name of the table in which each server of a cluster stores its rows of a table. */
export function localTable(table: string): string {
  return `${table}_local`;
}

interface Deletion extends Pick<Command, 'name' | 'params' | 'timeoutMs' | 'signal'> {
  readonly table: string;
  /** A condition on the rows; its subqueries read the rows of all shards. */
  readonly condition: string;
}

/**
 * Deletes the rows of a table that meet a condition, on all shards and replicas. Resolves when they are deleted.
 *
 * @throws errors of ClickHouse; some shards may then have deleted their rows.
 */
export async function deleteRows(clickhouse: ClickHouse, { table, condition, ...rest }: Deletion): Promise<void> {
  const layout = await clickhouse.layout();
  const deletion = (from: string): Command => ({
    ...rest,
    sql: `ALTER TABLE ${from} DELETE WHERE ${condition}`,
    profile: 'mutation',
  });
  if (layout.kind !== 'cluster') return clickhouse.command(deletion(table));
  const shards = await groupByShard(clickhouse.servers, layout.cluster);
  await Promise.all(shards.map((replicas) => onFirst(replicas, deletion(localTable(table)))));
}

/** Replicas get the deletion from the first one that responds. */
async function onFirst([replica, ...others]: readonly ClickHouse[], command: Command): Promise<void> {
  try {
    await replica?.command(command);
  } catch (error) {
    if (others.length === 0 || !isRunlakeError(error) || error.code !== 'CLICKHOUSE_UNAVAILABLE') throw error;
    await onFirst(others, command);
  }
}
