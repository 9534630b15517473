import { expect, test } from 'vitest';
import { closingLines, mergeSecondAttempt } from './test-report.ts';

const good = { project: 'embedded', file: 'test/a.test.ts', passed: 3, skipped: 1, seconds: 9.9, failures: [] };
const bad = {
  project: 'embedded',
  file: 'test/b.test.ts',
  passed: 1,
  skipped: 0,
  seconds: 12.4,
  failures: ['b: no', 'b: hook'],
};
const seedLine = 'RUNLAKE_TEST_SEED=7 repeats the random cases';
const badFileOnStack = { ...bad, project: 'stack', failures: ['b on the stack: no'] };

test.each([
  ['all tests passed', [good], [], [seedLine, '3 passed, 0 failed, 1 skipped']],
  [
    'some tests failed',
    [good, bad],
    [],
    ['12 s: embedded test/b.test.ts', 'failed: b: no', 'failed: b: hook', seedLine, '4 passed, 2 failed, 1 skipped'],
  ],
  ['an error outside of tests', [good], ['thrown'], ['failed: thrown', seedLine, '3 passed, 1 failed, 1 skipped']],
])('closing lines: %s', (_, files, outside, lines) => {
  expect(closingLines({ files, outside, leftOut: [], seed: 7 })).toEqual(lines);
});

test('closing lines: suites that the run left out', () => {
  expect(
    closingLines({ files: [good], outside: [], leftOut: ['test/c.test.ts', 'stack test/d.test.ts'], seed: 7 }),
  ).toEqual([
    'not in this run, but in make test-all: test/c.test.ts, stack test/d.test.ts',
    seedLine,
    '3 passed, 0 failed, 1 skipped',
  ]);
});

test.each([
  ['passes', [{ ...bad, passed: 3, failures: [] }], ['b on the stack: no']],
  ['fails with another message', [{ ...bad, failures: ['b: other'] }], ['b: other', 'b on the stack: no']],
  ['did not run', [], ['b: no', 'b: hook', 'b on the stack: no']],
  [
    'passes in one of the two projects in which it failed',
    [good, { ...badFileOnStack, failures: [] }],
    ['b: no', 'b: hook'],
  ],
])('second attempt: a failed file that %s', (_, files, failures) => {
  const both = mergeSecondAttempt(
    { files: [good, bad, badFileOnStack], outside: ['first'], leftOut: ['c'], seed: 7 },
    { files, outside: ['second'], leftOut: [], seed: 7 },
  );
  expect(both.files.flatMap((file) => file.failures)).toEqual(failures);
  expect(both.files[0]).toBe(good);
  expect(both.outside).toEqual(['first', 'second']);
  expect(both.leftOut).toEqual(['c']);
});

test('second attempt: a file that passed and now fails is reported as failed', () => {
  const now = { ...good, failures: ['a: now'] };
  const none = { outside: [], leftOut: [], seed: 7 };
  const both = mergeSecondAttempt({ files: [good, bad], ...none }, { files: [now], ...none });
  expect(both.files).toEqual([now, bad]);
});
