import { existsSync } from 'node:fs';
import { expect, test } from 'vitest';
import { inEachRun, inParts, listOmittedSuites, longSuites, onStackInParts } from './long-suites.ts';

const parts = ['1', '2', '3', '4', '5', '6', '7', '8', '9', '10'];
const suitesInParts = { ...inParts, ...onStackInParts };
const omittedBy = (part: string | undefined) => Object.values(listOmittedSuites(part)).flat();

test('lists of long suites name existing suites, each once', () => {
  expect(longSuites.filter((name) => !existsSync(new URL(`../../${name}`, import.meta.url)))).toEqual([]);
  expect(new Set(longSuites).size).toBe(longSuites.length);
  // On embedded engines these run each time.
  expect(Object.keys(onStackInParts).filter((name) => !(name in inEachRun))).toEqual([]);
});

test('runs of all parts run all of them, and a run without a part leaves out none', () => {
  const runs = parts.map((part) => new Set(omittedBy(part)));
  for (const name of Object.keys(suitesInParts))
    expect(
      runs.filter((omitted) => !omitted.has(name)),
      name,
    ).toHaveLength(1);
  expect(omittedBy(undefined)).toEqual([]);
});

test('parts take about the same time, and each has crash suites', () => {
  const sum = (names: readonly string[]) => names.reduce((seconds, name) => seconds + (suitesInParts[name] ?? 0), 0);
  const all = Object.keys(suitesInParts);
  for (const part of parts) {
    const omitted = new Set(omittedBy(part));
    const own = all.filter((name) => !omitted.has(name));
    expect(own.filter((name) => name.startsWith('test/crash/')).length).toBeGreaterThan(0);
    expect(Math.abs(sum(own) / (sum(all) / parts.length) - 1)).toBeLessThan(0.1);
  }
});

test.each(['0', '11', 'x', ''])('part %o does not exist', (part) => {
  expect(() => listOmittedSuites(part)).toThrow('no part');
});
