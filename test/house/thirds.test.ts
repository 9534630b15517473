import { existsSync } from 'node:fs';
import { expect, test } from 'vitest';
import { longest } from './longest-first.ts';
import { listOmittedSuites, thirds } from './thirds.ts';

const namesOf = ({ suites, onStack }: (typeof thirds)[number]) => [...suites, ...onStack];

test('lists of long suites name existing suites, each once', () => {
  for (const names of [thirds.flatMap(namesOf), longest]) {
    expect(names.filter((name) => !existsSync(new URL(`../../${name}`, import.meta.url)))).toEqual([]);
    expect(new Set(names).size).toBe(names.length);
  }
});

test('runs of all thirds run all of them, and a run without a third leaves out none', () => {
  const all = thirds.flatMap(namesOf);
  const runs = thirds.map((_, index) => new Set(namesOf(listOmittedSuites(String(index + 1)))));
  for (const name of all)
    expect(
      runs.filter((leftOut) => !leftOut.has(name)),
      name,
    ).toHaveLength(1);
  expect(namesOf(listOmittedSuites(undefined))).toEqual([]);
});

test.each(['0', '4', 'x', ''])('third %o does not exist', (third) => {
  expect(() => listOmittedSuites(third)).toThrow('no third');
});
