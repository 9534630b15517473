import { describe, expect, it } from 'vitest';
import { scanJson, scanObject, scanValue } from '../../../../pipelines/ingest/json/scan.ts';
import { KeySet } from '../../../../pipelines/ingest/json/scan-any.ts';
import fc from '../../../house/fast-check.ts';
import { catchError, jsonText, mutated, parses } from './json-text.fixture.ts';

const options = { part: 'post.1.inputs', maxDepth: 1_000 };
const scan = (text: string | Buffer, maxDepth = 1_000) => {
  const bytes = Buffer.from(text);
  return scanValue(bytes, 0, bytes.length, { ...options, maxDepth });
};

describe('syntax', () => {
  const valid: [string, string][] = [
    ['an empty object', '{}'],
    ['an empty array', '[]'],
    ['white space of all four kinds', ' \t\r\n[ \t\r\n1 \t\r\n, \t\r\n2 \t\r\n] \t\r\n'],
    ['white space in an object', '{ "a" : 1 , "b" : { } }'],
    ['a scalar alone', '"x"'],
    ['true', 'true'],
    ['false', 'false'],
    ['null', 'null'],
    ['zero', '0'],
    ['negative zero', '-0'],
    ['negative zero with a fraction and exponent', '-0.0e-0'],
    ['a number above every double', '1e999'],
    ['a number of many digits', '123456789012345678901234567890.123456789012345678901234567890'],
    ['a capital exponent with a plus', '1E+2'],
    ['repeated keys', '{"a":1,"a":2}'],
    ['an empty key', '{"":0}'],
    ['keys of prototypes', '{"__proto__":{"x":1},"constructor":null,"toString":0}'],
    ['every escape', '"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041"'],
    ['an escaped NUL', '"\\u0000"'],
    ['lone surrogates, escaped', '["\\ud800","\\udc00","\\udc00\\ud800"]'],
    ['capital hexadecimal digits', '"\\uABCD"'],
    ['DEL and C1 controls as they are', '"\u007f\u0080\u009f"'],
    ['line separators as they are', '"\u2028\u2029"'],
    ['a byte order mark inside a string', '"\ufeff"'],
    ['noncharacters', '"\uffff\ufdd0"'],
    ['the last code point', '"\u{10ffff}"'],
  ];
  it.each(valid)('accepts %s', (_, text) => {
    expect(parses(text)).toBe(true);
    const { start, end } = scan(text);
    expect(Buffer.from(text).toString('utf8', start, end)).toBe(text.replace(/^[ \t\r\n]+|[ \t\r\n]+$/g, ''));
  });

  const invalid: [string, string, number, string][] = [
    ['nothing', '', 0, 'the text ends where a value is expected'],
    ['white space only', ' \n ', 3, 'the text ends where a value is expected'],
    ['a byte order mark', '\ufeff{}', 0, 'a byte order mark is not JSON'],
    ['two values', '1 2', 2, 'text after the end of the value'],
    ['a bracket too many', '[]]', 2, 'text after the end of the value'],
    ['a bracket too few', '[[]', 3, "the text ends where ',' or ']' is expected"],
    ['a brace for a bracket', '[1}', 2, "'}' where ',' or ']' is expected"],
    ['a bracket for a brace', '{"a":1]', 6, "']' where ',' or '}' is expected"],
    ['a comma at the end of an array', '[1,]', 3, "']' where a value is expected"],
    ['a comma at the end of an object', '{"a":1,}', 7, "'}' where a key is expected"],
    ['a comma at the start', '[,1]', 1, "',' where a value is expected"],
    ['two commas', '[1,,2]', 3, "',' where a value is expected"],
    ['no comma', '[1 2]', 3, "'2' where ',' or ']' is expected"],
    ['no colon', '{"a" 1}', 5, "'1' where ':' is expected"],
    ['a colon too many', '{"a"::1}', 5, "':' where a value is expected"],
    ['a key without quotes', '{a:1}', 1, "'a' where a key or '}' is expected"],
    ['a number as key', '{1:1}', 1, "'1' where a key or '}' is expected"],
    ['single quotes', "'a'", 0, "''' where a value is expected"],
    ['a key alone', '{"a"}', 4, "'}' where ':' is expected"],
    ['an open object', '{', 1, "the text ends where a key or '}' is expected"],
    ['an open array', '[', 1, "the text ends where a value or ']' is expected"],
    ['a key that the text ends after', '{"a":', 5, 'the text ends where a value is expected'],
    ['an open string', '"abc', 4, 'the text ends inside a string'],
    ['an open string of many words', `"${'a'.repeat(100)}`, 101, 'the text ends inside a string'],
    ['an escaped closing quote', '"abc\\"', 6, 'the text ends inside a string'],
    ['a backslash at the end', '"abc\\', 5, 'the text ends inside a string'],
    ['half of a \\u escape', '"\\u12', 5, 'the text ends inside a string'],
    ['an unknown escape', '"\\x41"', 1, 'an escape that JSON does not define'],
    ['an escaped quote of the other kind', '"\\\'"', 1, 'an escape that JSON does not define'],
    ['a capital U', '"\\U0041"', 1, 'an escape that JSON does not define'],
    ['a \\u escape of three digits', '"\\u041"', 1, 'a \\u escape without four hexadecimal digits'],
    ['a NUL inside a string', '"a\0"', 2, 'the control character 0x00 inside a string'],
    ['a line feed inside a string', '"a\nb"', 2, 'the control character 0x0a inside a string'],
    ['a tab far inside a string', `"${'a'.repeat(77)}\tb"`, 78, 'the control character 0x09 inside a string'],
    ['a NUL outside', '[1,\0]', 3, 'byte 0x00 where a value is expected'],
    ['a form feed as white space', '\f1', 0, 'byte 0x0c where a value is expected'],
    ['a non-breaking space', '\u00a01', 0, 'byte 0xc2 where a value is expected'],
    ['a leading zero', '01', 0, 'a number with a leading zero'],
    ['a negative leading zero', '-01', 0, 'a number with a leading zero'],
    ['a plus', '+1', 0, "'+' where a value is expected"],
    ['a minus alone', '-', 1, 'the text ends where a digit is expected'],
    ['a minus before a letter', '-a', 1, "'a' where a digit is expected"],
    ['a leading decimal point', '.5', 0, "'.' where a value is expected"],
    ['a trailing decimal point', '1.', 2, 'the text ends where a digit is expected'],
    ['an exponent without digits', '[1e]', 3, "']' where a digit is expected"],
    ['an exponent with a sign only', '1e-', 3, 'the text ends where a digit is expected'],
    ['hexadecimal', '0x1', 1, 'text after the end of the value'],
    ['NaN', 'NaN', 0, "'N' where a value is expected"],
    ['Infinity', '-Infinity', 1, "'I' where a digit is expected"],
    ['undefined', 'undefined', 0, "'u' where a value is expected"],
    ['a short literal', 'tru', 3, "the text ends where the rest of 'true' is expected"],
    ['a misspelt literal', '[nulL]', 4, "'L' where the rest of 'null' is expected"],
    ['a long literal', 'truely', 4, 'text after the end of the value'],
    ['a comment', '[1 /* one */]', 3, "'/' where ',' or ']' is expected"],
  ];
  it.each(invalid)('refuses %s', (_, text, offset, reason) => {
    expect(parses(text.replace(/^\ufeff/, '?'))).toBe(false);
    const message = `Invalid JSON in post.1.inputs at byte ${offset}: ${reason}.`;
    expect(catchError(() => scan(text))).toMatchObject({ code: 'INVALID_JSON', status: 422, message });
  });

  it('agrees with JSON.parse on generated text and on its mutations', () => {
    fc.assert(
      fc.property(jsonText, (text) => {
        expect(() => scan(text)).not.toThrow();
      }),
      { numRuns: 1_000 },
    );
    fc.assert(
      fc.property(jsonText.chain(mutated), (bytes) => {
        const thrown = catchError(() => scan(bytes)) as { code: string } | undefined;
        const text = Buffer.from(bytes).toString('utf8');
        if (Buffer.from(text).equals(bytes)) expect(thrown === undefined, text).toBe(parses(text));
        else expect(thrown?.code).toBe('INVALID_UTF8');
      }),
      { numRuns: 5_000 },
    );
  });
});

describe('position of the text', () => {
  it('counts offsets from the start of the part, and reads nothing beyond its end', () => {
    const bytes = Buffer.from('xx[1,2]}}');
    expect(scanValue(bytes, 2, 7, options)).toEqual({ kind: 'array', start: 2, end: 7 });
    expect(catchError(() => scanValue(bytes, 2, 6, options))).toMatchObject({
      message: expect.stringContaining('byte 4'),
    });
    expect(catchError(() => scanValue(Buffer.from('"abcdef"'), 0, 4, options))).toMatchObject({ code: 'INVALID_JSON' });
  });

  it('finds the end of a string at every alignment and length', () => {
    for (let shift = 0; shift < 4; shift++) {
      for (let length = 0; length < 64; length++) {
        const text = `${' '.repeat(shift)}"${'é'.repeat(length % 7)}${'x'.repeat(length)}"`;
        const bytes = Buffer.concat([Buffer.alloc(shift + 1), Buffer.from(text)]).subarray(shift + 1);
        expect(scanValue(bytes, 0, bytes.length, options).end).toBe(bytes.length);
        const broken = Buffer.from(bytes);
        broken[broken.length - 1] = 0x1f;
        expect(() => scanValue(broken, 0, broken.length, options)).toThrow(`byte ${broken.length - 1}:`);
      }
    }
  });

  it('accepts a string of 10 MB', () => {
    const bytes = Buffer.from(JSON.stringify({ text: `${'ä"\n'.repeat(1_000_000)}${'plain '.repeat(1_000_000)}` }));
    expect(scanValue(bytes, 0, bytes.length, options)).toEqual({ kind: 'object', start: 0, end: bytes.length });
  });
});

describe('depth', () => {
  const nested = (depth: number) => `${'[{"a":'.repeat(depth / 2)}1${'}]'.repeat(depth / 2)}`;
  it.each([2, 1_000, 5_000, 1_000_000])('accepts %d levels and refuses one more', (maxDepth) => {
    expect(scan(nested(maxDepth), maxDepth).kind).toBe('array');
    expect(catchError(() => scan(`[${nested(maxDepth)}]`, maxDepth))).toMatchObject({
      code: 'TOO_DEEP',
      message: `The JSON in post.1.inputs is nested deeper than ${maxDepth} (the limit of all JSON bodies).`,
    });
  });

  it('counts containers, not siblings, from the outermost one', () => {
    expect(scan('[[],[],{"a":[]}]', 3).kind).toBe('array');
    expect(() => scan('[[],[],{"a":[]}]', 2)).toThrow('nested deeper than 2');
    const bytes = Buffer.from('{"a":[]}');
    expect(() => scanObject(bytes, 0, bytes.length, new KeySet([]), { part: 'p', maxDepth: 1, limit: 'L' })).toThrow(
      'The JSON in p is nested deeper than 1 (L).',
    );
    expect(scanObject(bytes, 0, bytes.length, new KeySet([]), { part: 'p', maxDepth: 2 })).toEqual([]);
    expect(scan('1', 0).kind).toBe('number');
    expect(() => scan('[]', 0)).toThrow('nested deeper than 0');
  });

  it('resets the depth after a failed scan', () => {
    expect(() => scan('[[[[')).toThrow();
    expect(scan('{"a":[1]}').kind).toBe('object');
  });
});

describe('members and items', () => {
  const keys = new KeySet(['id', 'inputs', 'name', '__proto__', 'größe']);
  const members = (text: string) => {
    const bytes = Buffer.from(text);
    return scanObject(bytes, 0, bytes.length, keys, options).map((range) =>
      range === undefined ? undefined : [range.kind, bytes.toString('utf8', range.start, range.end)],
    );
  };

  it.each<[string, string, (string[] | undefined)[]]>([
    ['none', ' { } ', [undefined, undefined, undefined, undefined, undefined]],
    [
      'only the requested members',
      '{"x":1, "id" : "a" ,"idx":2}',
      [['string', '"a"'], undefined, undefined, undefined, undefined],
    ],
    [
      'the last of repeated keys',
      '{"id":1,"name":true,"id":{ }}',
      [['object', '{ }'], undefined, ['true', 'true'], undefined, undefined],
    ],
    [
      'escaped keys',
      '{"\\u0069d":-1.50,"inputs":[1, 2]}',
      [['number', '-1.50'], ['array', '[1, 2]'], undefined, undefined, undefined],
    ],
    [
      'keys of prototypes',
      '{"__proto__":null,"constructor":1}',
      [undefined, undefined, undefined, ['null', 'null'], undefined],
    ],
    [
      'keys that are not ASCII',
      '{"gr\\u00f6\\u00dfe":1,"größe":false}',
      [undefined, undefined, undefined, undefined, ['false', 'false']],
    ],
  ])('returns %s', (_, text, expected) => {
    expect(members(text)).toEqual(expected);
  });

  it('agrees with JSON.parse, member by member and item by item', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.string({ unit: 'binary' }), jsonText)), (pairs) => {
        const text = ` {${pairs.map(([key, value]) => `${JSON.stringify(key)} : ${value}`).join(',')}} `;
        const bytes = Buffer.from(text);
        const parsed = new Map(Object.entries(JSON.parse(text) as object));
        const all = new KeySet([...parsed.keys()]);
        const ranges = scanObject(bytes, 0, bytes.length, all, options);
        const members = new Map<string | undefined, unknown>();
        scanJson(bytes, 0, bytes.length, options, (_kind, start, end, key) => {
          members.set(key, JSON.parse(bytes.toString('utf8', start, end)));
        });
        expect(members).toEqual(parsed);
        for (const [index, key] of all.keys.entries()) {
          const { start, end } = ranges[index]!;
          expect(JSON.parse(bytes.toString('utf8', start, end))).toEqual(parsed.get(key));
        }
      }),
      { numRuns: 500 },
    );
  });

  it.each([
    ['an array', '[]', "'[' where an object is expected"],
    ['a scalar', ' 1', "'1' where an object is expected"],
    ['nothing', '', 'the text ends where an object is expected'],
    ['text after it', '{} x', 'text after the end of the value'],
    ['an error in a member that was not requested', '{"x":tru}', "'}' where the rest of 'true' is expected"],
    ['a comma too many', '{"x":1,}', "'}' where a key is expected"],
    ['an unclosed object', '{"x":1', "the text ends where ',' or '}' is expected"],
  ])('refuses %s when an object is required', (_, text, reason) => {
    expect(() => members(text)).toThrow(reason);
  });
});
