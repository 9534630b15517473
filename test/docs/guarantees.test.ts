import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { agentRows } from '../../docs/pages/agent-crash-table.ts';
import { embeddedRows, serverRows, stepRows } from '../../docs/pages/crash-table.ts';
import { deploymentRows } from '../../docs/pages/deployment-crash-table.ts';
import { exportRows } from '../../docs/pages/export-crash-table.ts';

const root = new URL('../../', import.meta.url);
const read = (file: string) => readFileSync(new URL(file, root), 'utf8');
const proofs = [...stepRows, ...serverRows, ...embeddedRows, ...exportRows, ...agentRows, ...deploymentRows].flatMap(
  (row) => row.proofs,
);

/**
 * Returns the titles of the tests in a file. If the title of a table test is the name of its rows, returns the names of
 * the rows.
 */
function listTestTitles(file: string): string[] {
  const text = read(file);
  const titles = [...text.matchAll(/\btest(?:\.\w+)*(?:<.*>)?(?:\(.*\))?\(\s*'((?:[^'\\]|\\.)+)'/g)];
  const literalTitles = titles.filter(([, title]) => !title?.includes('$name'));
  const rows = literalTitles.length < titles.length ? [...text.matchAll(/\bname: '((?:[^'\\]|\\.)+)'/g)] : [];
  return [...literalTitles, ...rows].map(([, title]) => String(title));
}

describe('the table of guarantees', () => {
  it('names tests that exist', () => {
    const missing = proofs.filter(({ file, name }) => !read(file).includes(`'${name}'`));
    expect(missing).toEqual([]);
  });

  it('names every crash test, once', () => {
    const files = readdirSync(new URL('test/crash/', root)).filter((file) => file.endsWith('.test.ts'));
    const tests = files.flatMap((file) =>
      listTestTitles(`test/crash/${file}`).map((name) => `test/crash/${file}: ${name}`),
    );
    const named = proofs.map(({ file, name }) => `${file}: ${name}`);
    expect(tests.length).toBeGreaterThan(30);
    expect(named.filter((name) => name.startsWith('test/crash/')).sort()).toEqual(tests.sort());
  });
});
