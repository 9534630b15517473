import { Type } from 'typebox';
import { describe, expect, it } from 'vitest';
import { convertQuery, parseQuery } from '../../../api/server/query-string.ts';

describe('parseQuery', () => {
  it.each([
    ['/x', {}],
    ['/x?', {}],
    ['/x?a=1&b=two', { a: '1', b: 'two' }],
    ['/x?name=&flag&a=1', { a: '1' }],
    ['/x?id=1&id=2&id=3', { id: ['1', '2', '3'] }],
    ['/x?id=&id=2', { id: '2' }],
    ['/x?q=a+b%20c%2B%26%3D', { q: 'a b c+&=' }],
    ['/x?q=a=b', { q: 'a=b' }],
    ['/x?%C3%A9=%F0%9F%98%80', { é: '😀' }],
  ])('%s', (url, values) => {
    expect({ ...parseQuery(url) }).toEqual(values);
  });

  it('keeps __proto__ as an ordinary key', () => {
    const values = parseQuery('/x?__proto__=1&constructor=2');
    expect(Object.keys(values)).toEqual(['__proto__', 'constructor']);
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });

  it.each(['/x?a=%', '/x?a=%zz', '/x?%E0%A4=1', '/x?a=%ff'])('rejects %s as a bad request', (url) => {
    expect(() => parseQuery(url)).toThrow(expect.objectContaining({ code: 'BAD_REQUEST' }));
  });
});

it('rejects a NUL character in a parameter, because no store can hold it', () => {
  for (const url of ['/x?name=%00', '/x?name=a%00b', '/x?%00=1']) {
    expect(() => parseQuery(url)).toThrow(
      expect.objectContaining({ code: 'BAD_REQUEST', message: expect.stringMatching(/NUL/) }),
    );
  }
});

describe('convertQuery', () => {
  const schema = Type.Object({
    flag: Type.Boolean({ default: true }),
    limit: Type.Integer({ default: 100 }),
    share: Type.Optional(Type.Number()),
    ids: Type.Optional(Type.Array(Type.String())),
    numbers: Type.Optional(Type.Array(Type.Integer())),
    modes: Type.Optional(Type.Array(Type.String({ enum: ['values', 'debug'] }))),
    name: Type.Optional(Type.String()),
  });

  it.each([
    ['', { flag: true, limit: 100 }],
    ['flag=False&limit=5', { flag: false, limit: 5 }],
    ['flag=true&limit=-5&share=0.5', { flag: true, limit: -5, share: 0.5 }],
    ['flag=1', { flag: true, limit: 100 }],
    ['flag=off&limit=', { flag: false, limit: 100 }],
    ['flag=maybe&limit=1.5', { flag: 'maybe', limit: '1.5' }],
    ['limit=99999999999999999999', { flag: true, limit: '99999999999999999999' }],
    ['limit=1&limit=2', { flag: true, limit: ['1', '2'] }],
    ['ids=a', { flag: true, limit: 100, ids: ['a'] }],
    ['ids=a&ids=b&numbers=1&numbers=x', { flag: true, limit: 100, ids: ['a', 'b'], numbers: [1, 'x'] }],
    // The JavaScript client of the agent server sends lists as JSON.
    ['modes=["values","debug"]&numbers=[1,2]', { flag: true, limit: 100, modes: ['values', 'debug'], numbers: [1, 2] }],
    ['modes=["values"', { flag: true, limit: 100, modes: ['["values"'] }],
    ['ids=["a"]', { flag: true, limit: 100, ids: ['["a"]'] }],
    ['ids=[]', { flag: true, limit: 100, ids: ['[]'] }],
    ['name=007&other=1', { flag: true, limit: 100, name: '007', other: '1' }],
  ])('%s', (query, values) => {
    expect({ ...convertQuery(schema, parseQuery(`/x?${query}`)) }).toEqual(values);
  });
});
