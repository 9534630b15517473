import { existsSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

const page = readFileSync('docs/architecture.md', 'utf8');
const paths = [...page.split('## A traced run')].slice(1).flatMap((rest) => rest.split(/^## /m));

/** Returns the paths of files that a text names. */
const filesIn = (text: string) =>
  new Set([...text.matchAll(/`([\w./-]+\.(?:ts|mjs|sql|json))`/g)].map(([, path]) => path as string));

it('names files that exist', () => {
  const missing = [...filesIn(page)].filter((path) => !existsSync(path));
  expect(filesIn(page).size).toBeGreaterThan(50);
  expect(missing).toEqual([]);
});

it('follows each path through fewer than fifty files', () => {
  expect(paths).toHaveLength(3);
  for (const path of paths) {
    expect(filesIn(path).size).toBeGreaterThan(10);
    expect(filesIn(path).size).toBeLessThan(50);
  }
});
