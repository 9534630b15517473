import { describe, expect, it } from 'vitest';
import type { Layout } from '../../../infra/clickhouse/settings.ts';
import { splitStatements } from '../../../infra/migrations/apply-clickhouse.ts';
import { buildClusterStatements } from '../../../infra/migrations/cluster-statements.ts';
import { loadMigrations } from '../../../infra/migrations/load.ts';

const layouts = {
  single: { kind: 'single' },
  shards: { kind: 'cluster', cluster: 'two', shards: 2, replicas: 1, hasKeeper: false },
  replicas: { kind: 'cluster', cluster: 'four', shards: 2, replicas: 2, hasKeeper: true },
  replicated: { kind: 'replicated', replicas: 3, isShared: true },
} as const satisfies Record<string, Layout>;

const table = 'CREATE TABLE t (\n  a UUID, v UInt64\n)\nENGINE = ReplacingMergeTree(v)\nSHARD BY (a, b.3)\nORDER BY a';
const view = 'CREATE MATERIALIZED VIEW v TO t AS\nSELECT a, toStartOfHour(b) FROM e\nGROUP BY a';

describe('a table', () => {
  it.each([
    ['single', ['CREATE TABLE t (\n  a UUID, v UInt64\n)\nENGINE = ReplacingMergeTree(v)\nORDER BY a']],
    ['replicated', ['CREATE TABLE t (\n  a UUID, v UInt64\n)\nENGINE = ReplicatedReplacingMergeTree(v)\nORDER BY a']],
    [
      'shards',
      [
        'CREATE TABLE t_local (\n  a UUID, v UInt64\n)\nENGINE = ReplacingMergeTree(v)\nORDER BY a',
        "CREATE TABLE t AS t_local\nENGINE = Distributed('two', currentDatabase(), 't_local', cityHash64(a, b.3) % 2)",
      ],
    ],
    [
      'replicas',
      [
        "CREATE TABLE t_local (\n  a UUID, v UInt64\n)\nENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', v)\nORDER BY a",
        "CREATE TABLE t AS t_local\nENGINE = Distributed('four', currentDatabase(), 't_local', cityHash64(a, b.3) % 2)",
      ],
    ],
  ] as const)('in the layout %s', (name, expected) => {
    expect(buildClusterStatements(table, layouts[name], 2)).toEqual(expected);
  });
});

it('a table without SHARD BY is a plain table on every server of a cluster', () => {
  const plain = 'CREATE TABLE t (\n  a UUID\n)\nENGINE = MergeTree\nORDER BY a';
  for (const name of ['single', 'shards', 'replicas'] as const) {
    expect(buildClusterStatements(plain, layouts[name], 2)).toEqual([plain]);
  }
  expect(buildClusterStatements(plain, layouts.replicated, 0)).toEqual([plain.replace('Merge', 'ReplicatedMerge')]);
});

it('views of a cluster read and write local tables', () => {
  expect(buildClusterStatements(view, layouts.single, 0)).toEqual([view]);
  expect(buildClusterStatements(view, layouts.shards, 2)).toEqual([
    'CREATE MATERIALIZED VIEW v TO t_local AS\nSELECT a, toStartOfHour(b) FROM e_local\nGROUP BY a',
  ]);
});

it('columns are dropped in both tables of a cluster, and stay in one with a Keeper', () => {
  const alter = 'ALTER TABLE t\n  DROP COLUMN IF EXISTS c';
  expect(buildClusterStatements(alter, layouts.single, 0)).toEqual([alter]);
  expect(buildClusterStatements(alter, layouts.replicated, 0)).toEqual([alter]);
  expect(buildClusterStatements(alter, layouts.shards, 2)).toEqual([alter.replace('t\n', 't_local\n'), alter]);
  expect(buildClusterStatements(alter, layouts.replicas, 2)).toEqual([]);
});

it('every migration has a form for every layout', () => {
  const statements = loadMigrations('clickhouse').flatMap(({ sql }) => splitStatements(sql));
  for (const layout of Object.values(layouts)) {
    for (const sql of statements) expect(buildClusterStatements(sql, layout, 2).join()).not.toContain('SHARD BY');
  }
  const created = statements.flatMap((sql) => buildClusterStatements(sql, layouts.replicas, 2));
  const engines = created.filter((sql) => sql.startsWith('CREATE TABLE')).map((sql) => /ENGINE = (\w+)/.exec(sql)?.[1]);
  // Only the keys of deletions are in a plain table, with a copy on every server.
  expect(engines.filter((engine) => !/^(Replicated\w*MergeTree|Distributed|Null)$/.test(engine ?? ''))).toEqual([
    'MergeTree',
  ]);
  expect(() => buildClusterStatements('ALTER TABLE t ADD COLUMN c UInt8', layouts.shards, 2)).toThrow('no form');
});
