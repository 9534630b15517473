import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadMigrations } from '../../../infra/migrations/load.ts';
import { folderForTest } from '../../folders.ts';

function makeMigrationFolder(...names: string[]): string {
  const folder = folderForTest();
  for (const name of names) writeFileSync(join(folder, name), `-- ${name}`);
  return folder;
}

describe('loadMigrations', () => {
  it.each(['postgres', 'clickhouse'] as const)('loads the migrations of %s, numbered without gaps', (store) => {
    const migrations = loadMigrations(store);
    expect(migrations.length).toBeGreaterThan(0);
    expect(migrations.map(({ version }) => version)).toEqual(migrations.map((_, index) => index + 1));
  });

  it('returns name, number and contents', () => {
    expect(loadMigrations('postgres', makeMigrationFolder('0002_b.sql', '0001_a_1.sql'))).toEqual([
      expect.objectContaining({ version: 1, name: '0001_a_1', sql: '-- 0001_a_1.sql' }),
      expect.objectContaining({ version: 2, name: '0002_b', checksum: expect.stringMatching(/^[0-9a-f]{64}$/) }),
    ]);
  });

  it.each([
    ['a gap', ['0001_a.sql', '0003_c.sql'], '0003_c failed: migration number 2 is missing'],
    ['a first that is not 1', ['0002_b.sql'], '0002_b failed: migration number 1 is missing'],
    ['a number given twice', ['0001_a.sql', '0001_b.sql'], '0001_b failed: its number is a duplicate'],
    ['a zero', ['0000_a.sql'], '0000_a failed: its number is a duplicate'],
    ['another kind of name', ['0001_a.sql', '2_b.sql'], '2_b.sql failed: its file name must be NNNN_name.sql'],
    ['another kind of file', ['0001_a.sql.orig'], '0001_a.sql.orig failed: its file name must be NNNN_name.sql'],
  ])('%s is refused', (_, names, words) => {
    expect(() => loadMigrations('postgres', makeMigrationFolder(...names))).toThrow(words);
  });
});
