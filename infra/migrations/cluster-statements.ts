import { toLocalTable } from '../clickhouse/layout.ts';
import type { Layout } from '../clickhouse/settings.ts';
import { runlakeError } from '../errors/runlake-error.ts';

/**
 * Matches a CREATE TABLE statement of the migrations: its head with name and columns, its engine with arguments, the
 * columns after SHARD BY, and the other clauses.
 */
const tablePattern =
  /^CREATE TABLE (?<name>\w+)(?<columns> \([\s\S]*\)\s+)ENGINE = (?<engine>\w+)(?:\((?<arguments>[^)]*)\))?(?:\s+SHARD BY \((?<key>[^)]*)\))?(?<rest>[\s\S]*)$/;
const viewPattern =
  /^(?<head>CREATE MATERIALIZED VIEW \w+ TO )(?<target>\w+)(?<select> AS\s[\s\S]*\sFROM )(?<source>\w+)(?<rest>[\s\S]*)$/;
/** Matches a statement that drops unused columns of a table with SHARD BY. */
const dropPattern = /^ALTER TABLE (?<table>\w+)(?<change>(?:\s+DROP COLUMN IF EXISTS \w+,?)+)$/;

/**
 * Converts a statement of a migration to the statements for a layout. The clause `SHARD BY (columns)` of CREATE TABLE
 * is an extension of Runlake: rows with equal values in these columns are stored on the same shard. Rows that merge
 * with each other must have equal values in these columns. A table without this clause is a plain table on every
 * server. Views read and write the local tables, so derived rows are stored where their source rows are. Unused
 * columns are not dropped in a cluster with a Keeper: a server that is added runs all migrations, and ClickHouse refuses
 * to create a replica with other columns than those of the existing replicas.
 *
 * @param shards the number of shards when the tables were first created. It is part of the sharding key, so that a
 *   shard that is added later does not move the rows of existing traces.
 * @throws PART_UNUSABLE for a statement that cannot be converted for a cluster.
 */
export function buildClusterStatements(sql: string, layout: Layout, shards: number): string[] {
  const { name, columns, engine, arguments: args = '', key, rest } = tablePattern.exec(sql)?.groups ?? {};
  if (name !== undefined) {
    const create = (table: string, usedEngine: string) =>
      `CREATE TABLE ${table}${columns}ENGINE = ${usedEngine}${rest}`;
    if (layout.kind === 'replicated') return [create(name, addArguments(toReplicatedEngine(engine!), [args]))];
    if (layout.kind === 'single' || key === undefined) return [create(name, addArguments(engine!, [args]))];
    const isReplicated = layout.hasKeeper && engine !== 'Null';
    const local = isReplicated
      ? addArguments(toReplicatedEngine(engine!), [...replicaPath, args])
      : addArguments(engine!, [args]);
    return [
      create(toLocalTable(name), local),
      `CREATE TABLE ${name} AS ${toLocalTable(name)}
ENGINE = Distributed('${layout.cluster}', currentDatabase(), '${toLocalTable(name)}', cityHash64(${key}) % ${shards})`,
    ];
  }
  if (layout.kind !== 'cluster') return [sql];
  const { head, target, select, source, rest: end } = viewPattern.exec(sql)?.groups ?? {};
  if (head !== undefined) return [`${head}${toLocalTable(target!)}${select}${toLocalTable(source!)}${end}`];
  const { table, change } = dropPattern.exec(sql)?.groups ?? {};
  if (table !== undefined)
    return layout.hasKeeper ? [] : [toLocalTable(table), table].map((each) => `ALTER TABLE ${each}${change}`);
  throw runlakeError('PART_UNUSABLE', {
    reason: `A statement of a migration has no form for a cluster: ${sql.slice(0, 80)}`,
    remedy:
      'Write it as CREATE TABLE … SHARD BY, or as a view of one table, or as ALTER TABLE … DROP COLUMN IF EXISTS.',
  });
}

/**
 * Path and replica name of a replicated table. The server replaces the macros; `shard` and `replica` come from its
 * configuration.
 */
const replicaPath = ["'/clickhouse/tables/{shard}/{database}/{table}'", "'{replica}'"];

function toReplicatedEngine(engine: string): string {
  return engine === 'Null' ? engine : `Replicated${engine}`;
}

function addArguments(engine: string, args: readonly string[]): string {
  const given = args.filter((argument) => argument !== '');
  return given.length === 0 ? engine : `${engine}(${given.join(', ')})`;
}
