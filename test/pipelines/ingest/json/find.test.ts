import { describe, expect, it } from 'vitest';
import { findPath } from '../../../../pipelines/ingest/json/find.ts';
import fc from '../../../house/fast-check.ts';
import { jsonText } from './json-text.fixture.ts';

const find = (text: string, ...path: string[]) => {
  const bytes = Buffer.from(`#${text}#`);
  const range = findPath(bytes, 1, bytes.length - 1, path);
  return range && bytes.toString('utf8', range.start, range.end);
};

describe('findPath', () => {
  it.each<[string, string, string[], string | undefined]>([
    ['the whole text', ' {"a":1} ', [], '{"a":1}'],
    ['a member', '{"a":1,"b":"x"}', ['b'], '"x"'],
    ['a member of a member', ' { "a" : { "b" : [1, {"c":2}] } } ', ['a', 'b'], '[1, {"c":2}]'],
    ['the last of repeated keys', '{"a":{"b":1},"a":{"b":2}}', ['a', 'b'], '2'],
    ['nothing if the last of repeated keys lacks it', '{"a":{"b":1},"a":{}}', ['a', 'b'], undefined],
    ['nothing in an array', '{"a":[{"b":1}]}', ['a', 'b'], undefined],
    ['nothing in a scalar', '"a"', ['a'], undefined],
    ['nothing in an empty object', '{ }', ['a'], undefined],
    ['not a key with the same prefix', '{"ab":1,"a":2,"abc":3}', ['a'], '2'],
    ['not a value with the same text', '{"x":"a","a":true}', ['a'], 'true'],
    ['not a deeper key', '{"x":{"a":1}}', ['a'], undefined],
    ['an escaped key', '{"\\u0061\\"":null}', ['a"'], 'null'],
    ['a key that is not ASCII', '{"größe":-1}', ['größe'], '-1'],
    ['an escaped key that is not ASCII', '{"gr\\u00f6\\u00dfe":-1}', ['größe'], '-1'],
    ['a key of a prototype', '{"__proto__":{"x":0}}', ['__proto__', 'x'], '0'],
    ['no missing key of a prototype', '{}', ['__proto__'], undefined],
    ['the empty key', '{"":0}', [''], '0'],
    ['a member after brackets in strings', '{"x":"]}\\"[{","a":1}', ['a'], '1'],
    ['a member after a string that ends in backslashes', '{"x":"\\\\\\\\","a":1}', ['a'], '1'],
  ])('finds %s', (_, text, path, expected) => {
    expect(find(text, ...path)).toBe(expected);
  });

  it.each([0, 60, 63, 64, 65, 500])('skips a string with quotes and backslashes after %d bytes', (length) => {
    for (const tail of ['', '\\\\', '\\"', '\\\\\\"', '\\\\"'.slice(0, 2), 'x\\\\\\\\', '\\"\\"']) {
      expect(find(`{"x":"${'y'.repeat(length)}${tail}","a":[1]}`, 'a')).toBe('[1]');
    }
  });

  it('agrees with JSON.parse', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.string({ unit: 'binary' }), jsonText)), fc.string(), (pairs, other) => {
        const text = `{${pairs.map(([key, value]) => `${JSON.stringify(key)}: ${value} `).join(',')}}`;
        const parsed = new Map(Object.entries(JSON.parse(text) as object));
        for (const key of [...parsed.keys(), other]) {
          const found = find(text, key);
          expect(found === undefined).toBe(!parsed.has(key));
          if (found !== undefined) expect(JSON.parse(found)).toEqual(parsed.get(key));
        }
      }),
      { numRuns: 500 },
    );
  });
});
