import { existsSync } from 'node:fs';
import { expect, it } from 'vitest';
import { filesOfTracedRun, namedFiles, paths } from './architecture-page.ts';

it('names files that exist', () => {
  expect(namedFiles.size).toBeGreaterThan(50);
  expect([...namedFiles].filter((path) => !existsSync(path))).toEqual([]);
});

it('follows each path through fewer than fifty files', () => {
  expect([...paths.keys()]).toEqual([
    ...['A traced run', 'A bulk export', 'Usage', 'A graph run', 'A deployment', 'A tool call'],
  ]);
  for (const files of paths.values()) expect(files.size).toBeLessThan(50);
  expect(filesOfTracedRun.size).toBeGreaterThan(30);
  expect(filesOfTracedRun.size).toBeLessThan(50);
});
