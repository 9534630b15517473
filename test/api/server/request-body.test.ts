import { describe, expect, it } from 'vitest';
import { parseJsonBody } from '../../../api/server/request-body.ts';

const parse = (body: string | Buffer, maxDepth = 100) => parseJsonBody(Buffer.from(body as string), maxDepth);

describe('parseJsonBody', () => {
  it('parses JSON, and an empty body as undefined', () => {
    expect(parse('{"a":[1,"\\u0000",null]}')).toEqual({ a: [1, '\0', null] });
    expect(parse('')).toBeUndefined();
  });

  it('keeps __proto__ as an own key without prototype pollution', () => {
    const value = parse('{"__proto__":{"polluted":true}}') as object;
    expect(Object.keys(value)).toEqual(['__proto__']);
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });

  it.each([
    ['{"a":', 'INVALID_JSON', /byte 5/],
    ['{"a":tru}', 'INVALID_JSON', /byte/],
    ['"é" x', 'INVALID_JSON', /byte 5/],
    [' ', 'INVALID_JSON', /byte 1/],
    [Buffer.from([0x22, 0x61, 0xff, 0x22]), 'INVALID_UTF8', /byte 2/],
    [`${'['.repeat(101)}${']'.repeat(101)}`, 'TOO_DEEP', /deeper than 100/],
  ])('rejects %j with %s', (body, code, message) => {
    expect(() => parse(body)).toThrow(expect.objectContaining({ code, message: expect.stringMatching(message) }));
  });

  it('accepts the maximum nesting depth, and brackets inside strings', () => {
    expect(parse(`${'['.repeat(100)}${']'.repeat(100)}`)).toBeDefined();
    expect(parse(`["${'['.repeat(500)}\\"${'{'.repeat(500)}"]`)).toHaveLength(1);
  });

  it('refuses more than a million values, and reserves memory for each', () => {
    expect(() => parse(`[${'0,'.repeat(1_000_000)}0]`)).toThrow(
      expect.objectContaining({ code: 'TOO_MANY_PARTS', message: expect.stringContaining('1000000') }),
    );
    let values = 0;
    parseJsonBody(Buffer.from('{"a":[{},{}],"b":[0,1,2]}'), 100, { addValue: () => (values += 1) });
    expect(values).toBe(9);
  });
});
