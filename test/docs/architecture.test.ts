import { existsSync } from 'node:fs';
import { expect, it } from 'vitest';
import { filesOfTracedRun, namedFiles, paths } from './architecture-page.ts';

it('names files that exist', () => {
  expect(namedFiles.size).toBeGreaterThan(50);
  expect([...namedFiles].filter((path) => !existsSync(path))).toEqual([]);
});

it('follows each path through fewer than fifty files', () => {
  expect(paths).toHaveLength(4);
  for (const path of paths) {
    expect(filesIn(path).size).toBeGreaterThan(10);
    expect(filesIn(path).size).toBeLessThan(50);
  }
});
