import { expect, test } from 'vitest';
import { metadataOf, readBoth, readDraft, request, span, texts } from './requests.ts';

/** Returns the text of metadata `a` for an attribute with this AnyValue in OTLP/JSON text. */
function metadataText(anyValue: string): string {
  const json = request([span()]).replace('"kind":1', `"kind":1,"attributes":[{"key":"a","value":${anyValue}}]`);
  const { drafts, rejected } = readBoth(json);
  expect(rejected).toEqual([]);
  const extra = texts(drafts[0]?.values ?? {}).extra as string;
  expect(() => JSON.parse(extra)).not.toThrow();
  return extra.slice('{"metadata":{"a":'.length, -'}}'.length);
}

const values: ReadonlyArray<readonly [name: string, anyValue: string, json: string]> = [
  ['text', '{"stringValue":"plain"}', '"plain"'],
  ['empty text', '{"stringValue":""}', '""'],
  ['text with escapes', '{"stringValue":"\\"\\\\\\n\\u0000\\u001f\\u007f"}', '"\\"\\\\\\n\\u0000\\u001f\u007f"'],
  ['text beyond ASCII', '{"stringValue":"žluť 🐎 \\u2028"}', '"žluť 🐎 \u2028"'],
  ['a lone surrogate, which UTF-8 cannot represent', '{"stringValue":"\\ud800"}', '"\ufffd"'],
  ['true', '{"boolValue":true}', 'true'],
  ['false', '{"boolValue":false}', 'false'],
  ['an integer as text', '{"intValue":"42"}', '42'],
  ['an integer as number', '{"intValue":42}', '42'],
  ['zero', '{"intValue":"0"}', '0'],
  ['the maximum integer', '{"intValue":"9223372036854775807"}', '9223372036854775807'],
  ['the maximum integer as number', '{"intValue":9223372036854775807}', '9223372036854775807'],
  ['the minimum integer', '{"intValue":"-9223372036854775808"}', '-9223372036854775808'],
  ['an integer beyond doubles', '{"intValue": 9007199254740993 }', '9007199254740993'],
  ['a negative integer', '{"intValue":-1}', '-1'],
  ['a double', '{"doubleValue":0.1}', '0.1'],
  ['a whole double', '{"doubleValue":3}', '3'],
  ['a tiny double', '{"doubleValue":5e-324}', '5e-324'],
  ['not a number', '{"doubleValue":"NaN"}', '"NaN"'],
  ['infinity', '{"doubleValue":"Infinity"}', '"Infinity"'],
  ['minus infinity', '{"doubleValue":"-Infinity"}', '"-Infinity"'],
  ['bytes', '{"bytesValue":"AAEC/w=="}', '"AAEC/w=="'],
  ['no bytes', '{"bytesValue":""}', '""'],
  ['an array', '{"arrayValue":{"values":[{"stringValue":"x"},{"intValue":"1"},{}]}}', '["x",1,null]'],
  ['an empty array', '{"arrayValue":{}}', '[]'],
  ['a list of keys', '{"kvlistValue":{"values":[{"key":"k \\"","value":{"boolValue":true}}]}}', '{"k \\"":true}'],
  ['an empty list of keys', '{"kvlistValue":{"values":[]}}', '{}'],
  [
    'an array in a list',
    '{"kvlistValue":{"values":[{"key":"k","value":{"arrayValue":{"values":[{}]}}}]}}',
    '{"k":[null]}',
  ],
  ['the absent value', '{}', 'null'],
  ['an unknown kind of value', '{"futureValue":1}', 'null'],
  ['names as in the .proto', '{"array_value":{"values":[{"int_value":9007199254740993}]}}', '[9007199254740993]'],
];

test.each(values)('%s is written as JSON, the same from both encodings', (_name, anyValue, json) => {
  expect(metadataText(anyValue)).toBe(json);
});

test('an attribute without a value, and one without a key, are kept', () => {
  const draft = readDraft({ attributes: [{ key: 'none' }, { value: { intValue: 1 } }] });
  expect(metadataOf(draft.values)).toEqual({ none: null, '': 1 });
});

test('the first of two attributes with the same name wins, so that keys stay unique', () => {
  const attributes = [
    { key: 'twice', value: { intValue: 1 } },
    { key: 'twice', value: { intValue: 2 } },
  ];
  expect(texts(readDraft({ attributes }).values).extra).toBe('{"metadata":{"twice":1}}');
});

test('names of inherited object properties are ordinary names', () => {
  const attributes = ['__proto__', 'constructor', 'langsmith.metadata.__proto__'].map((key, index) => ({
    key,
    value: { intValue: index },
  }));
  expect(texts(readDraft({ attributes }).values).extra).toBe('{"metadata":{"__proto__":2,"constructor":1}}');
});

/** Returns a nested AnyValue as text, with alternating arrays and key lists. */
function nested(levels: number): string {
  const open: string[] = [];
  const close: string[] = [];
  for (let level = 0; level < levels; level++) {
    open.push(level % 2 === 0 ? '{"arrayValue":{"values":[' : '{"kvlistValue":{"values":[{"key":"k","value":');
    close.push(level % 2 === 0 ? ']}}' : '}]}}');
  }
  return `${open.join('')}{"intValue":1}${close.reverse().join('')}`;
}

test.each([
  [8, 8, undefined],
  [9, 8, 'a value is nested deeper than 8'],
  [60, 8, 'a value is nested deeper than 8'],
  [100, 5_000, undefined],
  [101, 5_000, 'a value is nested deeper than 100'],
  [20_000, 1_000_000, 'a value is nested deeper than 100'],
])('%i levels under a limit of %i: %s', (levels, maxDepth, reason) => {
  const spans = [span({ attributes: [{ key: 'deep', value: 'HERE' }] }), span({ spanId: 'aaaaaaaaaaaaaaaa' })];
  const body = request(spans).replace('"HERE"', nested(levels));
  if (levels * 2 > maxDepth * 5) {
    expect(() => readBoth(body, maxDepth)).toThrow(/nested deeper/);
    return;
  }
  const { drafts, rejected } = readBoth(body, maxDepth);
  expect(rejected).toEqual(reason === undefined ? [] : [{ index: 0, reason }]);
  expect(drafts).toHaveLength(reason === undefined ? 2 : 1);
});
