import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { BoundedLog } from '../../../infra/embedded/child-program.ts';
import { folderForTest } from '../../folders.ts';

it('keeps the last lines in two files of bounded size', () => {
  const path = join(folderForTest(), 'log');
  const log = new BoundedLog(path, 100);
  for (let line = 0; line < 1_000; line += 1) log.write(`line ${line}`);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(readFileSync(path, 'utf8')).toMatch(/line 999\n$/);
  for (const file of [path, `${path}.1`]) expect(statSync(file).size).toBeLessThan(120);
  expect(readFileSync(`${path}.1`, 'utf8')).toMatch(/^line \d+\n/);
});

it('appends to the log of an earlier process', () => {
  const path = join(folderForTest(), 'log');
  new BoundedLog(path, 10).write('0123456789');
  new BoundedLog(path, 10).write('new');
  expect(readFileSync(path, 'utf8')).toBe('new\n');
});

it('ignores a log that cannot be written', () => {
  const folder = join(folderForTest(), 'missing');
  new BoundedLog(join(folder, 'log'), 10).write('line');
  expect(existsSync(folder)).toBe(false);
});
