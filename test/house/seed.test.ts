import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { pickSome } from './extent.ts';
import fc from './fast-check.ts';
import { seed } from './seed.ts';

const file = new URL('seed.ts', import.meta.url).href;
const seedOfChild = (environment: NodeJS.ProcessEnv) =>
  Number(
    execFileSync(
      process.execPath,
      ['--import', 'tsx', '--eval', `import(${JSON.stringify(file)}).then((m) => console.log(m.seed))`],
      {
        env: { ...process.env, ...environment },
      },
    ),
  );

test.each([
  ['inherits the seed', {}, seed],
  ['has the seed that is set', { RUNLAKE_TEST_SEED: '7' }, 7],
])('a child process %s', (_, environment, expected) => {
  expect(seedOfChild(environment)).toBe(expected);
});

test('a process without a seed picks one', () => {
  const picked = seedOfChild({ RUNLAKE_TEST_SEED: '' });
  expect(picked).toBeGreaterThanOrEqual(0);
  expect(picked).not.toBe(seed);
});

test('random cases and properties follow from the seed', () => {
  const cases = Array.from({ length: 1_000 }, (_, index) => index);
  expect(pickSome(cases, 1 / 2)).toEqual(pickSome(cases, 1 / 2));
  expect(fc.readConfigureGlobal()).toMatchObject({ seed });
});
