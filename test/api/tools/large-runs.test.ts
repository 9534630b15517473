/** The work for runs with large lists, which one call can read. All other requests of the process wait for it. */
import { expect, it } from 'vitest';
import { buildPage } from '../../../api/tools/pages.ts';
import { parseWithPythonNumbers } from '../../../api/tools/python-numbers.ts';

const options = { pageNumber: 1, maxCharsPerPage: 25_000, previewChars: 150 };
const count = 300_000;

/** Returns `value` and the number of times that one of its members was read. */
function countReads<Value extends object>(value: Value) {
  const reads = { count: 0 };
  const get = (target: Value, name: string | symbol) => {
    reads.count += 1;
    return Reflect.get(target, name);
  };
  return { reads, value: new Proxy(value, { get }) };
}

it.each([
  ['numbers', Array.from({ length: count }, () => 1)],
  ['texts', Array.from({ length: count }, () => 'a')],
  ['lists', Array.from({ length: count }, () => [])],
  ['members', Object.fromEntries(Array.from({ length: 100_000 }, (_, index) => [`m${index}`, 1]))],
])('a page reads as many %s as it has characters for', (_, list) => {
  const { reads, value } = countReads(list);
  const page = buildPage('runs', [{ inputs: { value } }], options);
  expect(page).toMatchObject({ runs: [], _truncated: true, total_pages: 1 });
  expect(reads.count).toBeLessThan(70_000);
});

it.each([
  ['whole numbers', '1,'],
  ['floats', '0.1234567,'],
  ['floats without a fraction', '1.0,'],
])('a list of %s is parsed within a few times the time of JSON.parse', (_, unit) => {
  const list = unit.repeat(Math.floor(6_000_000 / unit.length));
  const text = `{"first":[1.0],"text":"1.0","list":[${list}2.0]}`;
  const measure = (parse: (text: string) => unknown) => {
    const startedAt = performance.now();
    parse(text);
    return performance.now() - startedAt;
  };
  const plain = Math.max(measure(JSON.parse), measure(JSON.parse));
  expect(Math.min(measure(parseWithPythonNumbers), measure(parseWithPythonNumbers))).toBeLessThan(4 * plain + 200);
  expect(JSON.stringify((parseWithPythonNumbers(text) as { list: number[] }).list.slice(-2))).toBe(
    `[${Number(unit.slice(0, -1))},2]`,
  );
});
