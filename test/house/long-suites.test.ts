import { existsSync } from 'node:fs';
import { expect, test } from 'vitest';
import { listOmittedSuites, parts } from './long-suites.ts';
import { longest } from './longest-first.ts';

const namesOf = ({ suites, onStack }: (typeof parts)[number]) => [...suites, ...onStack];

test('lists of long suites name existing suites, each once', () => {
  for (const names of [parts.flatMap(namesOf), longest]) {
    expect(names.filter((name) => !existsSync(new URL(`../../${name}`, import.meta.url)))).toEqual([]);
    expect(new Set(names).size).toBe(names.length);
  }
});

test('runs of all parts run all of them, and a run without a part leaves out none', () => {
  const all = parts.flatMap(namesOf);
  const runs = parts.map((_, index) => new Set(namesOf(listOmittedSuites(String(index + 1)))));
  for (const name of all)
    expect(
      runs.filter((leftOut) => !leftOut.has(name)),
      name,
    ).toHaveLength(1);
  expect(namesOf(listOmittedSuites(undefined))).toEqual([]);
});

test.each(['0', '5', 'x', ''])('part %o does not exist', (part) => {
  expect(() => listOmittedSuites(part)).toThrow('no part');
});
