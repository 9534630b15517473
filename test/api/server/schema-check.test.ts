import { type TSchema, Type } from 'typebox';
import { describe, expect, it } from 'vitest';
import { registerTimestampFormat, Text, Timestamp, Uuid } from '../../../api/server/formats.ts';
import { compileValidator } from '../../../api/server/schema-check.ts';

registerTimestampFormat();

function check(schema: TSchema, value: unknown, httpPart = 'body'): unknown {
  const result = (compileValidator({ schema, httpPart, method: 'POST', url: '/' }) as (value: unknown) => object)(
    value,
  );
  return 'error' in result ? (result.error as { fields: unknown }).fields : 'fits';
}

describe('compileCheck', () => {
  const schema = Type.Object({
    name: Type.String({ maxLength: 3 }),
    items: Type.Optional(Type.Array(Type.Object({ id: Uuid() }))),
  });

  it.each([
    [{ name: 'abc', more: 1 }, 'fits'],
    [{ name: 1 }, [{ loc: ['body', 'name'], msg: 'must be string', type: 'string_type' }]],
    [{}, [{ loc: ['body', 'name'], msg: 'Field required', type: 'missing' }]],
    [null, [{ loc: ['body'], msg: 'must be object', type: 'object_type' }]],
    [
      { name: 'a', items: [{ id: 'x' }] },
      [{ loc: ['body', 'items', 0, 'id'], msg: 'must be a UUID', type: 'uuid_format' }],
    ],
  ])('%j', (value, result) => {
    expect(check(schema, value)).toEqual(result);
  });

  it('lists every error, but only a few of very many', () => {
    expect(check(schema, { name: 'long', items: 1 })).toHaveLength(2);
    const many = { name: 'a', items: Array.from({ length: 20_000 }, () => ({ id: 'x' })) };
    expect((check(schema, many) as unknown[]).length).toBeLessThan(20);
  });

  it('does not search millions of elements for errors, which would block the event loop', () => {
    const whole = [
      { loc: ['body'], msg: 'does not match the schema (too many elements to report where)', type: 'value_error' },
    ];
    const items = Array.from({ length: 200_000 }, () => ({ id: 'x' }));
    expect(check(schema, { name: 'a', items })).toEqual(whole);
    const closed = Type.Object({}, { additionalProperties: false });
    expect(check(closed, Object.fromEntries(items.map((item, location) => [`f${location}`, item])))).toEqual(whole);
    const long = { name: 'a', more: items };
    expect(check(schema, long)).toBe('fits');
  });

  const word = Type.Union(['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j'].map((name) => Type.Literal(name)));
  const words = Type.Object({
    one: Type.Optional(word),
    none: Type.Optional(Type.Union([word, Type.Null()])),
    some: Type.Optional(Type.Array(word)),
    either: Type.Optional(Type.Union([Type.Union([word, Type.Array(word)]), Type.Null()])),
    only: Type.Optional(Type.Union([Type.Literal(1), Type.Null()])),
    number: Type.Optional(Type.Union([Type.Integer({ minimum: 1 }), Type.Null()])),
  });
  const buildOneOfError = (...location: (string | number)[]) => ({
    loc: ['body', ...location],
    msg: 'must be one of a, b, c, d, e, f, g, h, i, j',
    type: 'enum',
  });

  it.each([
    [{ one: 'x' }, [buildOneOfError('one')]],
    [{ one: 1 }, [buildOneOfError('one')]],
    [{ none: 'x' }, [buildOneOfError('none')]],
    [{ some: ['a', 'x'] }, [buildOneOfError('some', 1)]],
    [{ either: 'x' }, [buildOneOfError('either')]],
    [{ either: ['a', 'x'] }, [buildOneOfError('either')]],
    [{ only: 2 }, [{ loc: ['body', 'only'], msg: 'must be 1', type: 'enum' }]],
  ])('lists the allowed values once: %j', (value, result) => {
    expect(check(words, value)).toEqual(result);
  });

  it.each([
    { a: 1, b: 2 },
    { a: 1, b: 2, c: 3 },
  ])('names an unknown field of a closed object: %j', (value) => {
    const closed = Type.Object({ a: Type.Integer() }, { additionalProperties: false });
    const errors = check(Type.Object({ inner: Type.Union([closed, Type.Null()]) }), { inner: value }) as object[];
    expect(errors).toContainEqual({ loc: ['body', 'inner', 'b'], msg: 'Field not known', type: 'extra_forbidden' });
  });

  const inner = Type.Object({ id: Uuid(), time: Type.Optional(Type.Union([Timestamp(), Type.Null()])) });
  const nullable = Type.Object({
    number: Type.Optional(Type.Union([Type.Integer({ minimum: 1 }), Type.Null()])),
    inner: Type.Optional(Type.Union([inner, Type.Null()])),
  });

  it.each([
    [{ number: 0 }, [{ loc: ['body', 'number'], msg: 'must be >= 1', type: 'minimum' }]],
    [{ number: 'x' }, [{ loc: ['body', 'number'], msg: 'must be integer', type: 'integer_type' }]],
    [{ inner: 1 }, [{ loc: ['body', 'inner'], msg: 'must be object', type: 'object_type' }]],
    [
      { inner: { id: 'x', time: 'y' } },
      [
        { loc: ['body', 'inner', 'id'], msg: 'must be a UUID', type: 'uuid_format' },
        {
          loc: ['body', 'inner', 'time'],
          msg: 'must be an ISO 8601 date and time, such as 2026-01-05T00:00:00Z',
          type: 'date_time_format',
        },
      ],
    ],
  ])('does not report a nullable value as not null: %j', (value, result) => {
    expect(check(nullable, value)).toEqual(result);
  });

  const unions = Type.Object({
    ids: Type.Optional(Type.Union([Type.Union([Uuid(), Type.Array(Uuid())]), Type.Null()])),
    split: Type.Optional(Type.Union([Type.String(), Type.Array(Type.String())])),
    root: Type.Optional(Type.Union([Type.Boolean(), Type.Literal(0), Type.Literal(1), Type.Null()])),
    object: Type.Optional(Type.Union([Type.Object({ id: Uuid() }), Type.Array(Type.Object({ id: Uuid() }))])),
  });

  it.each<[object, (string | number)[], string]>([
    [{ ids: 'x' }, ['ids'], 'must be a UUID'],
    [{ ids: ['x'] }, ['ids', 0], 'must be a UUID'],
    [{ ids: 5 }, ['ids'], 'must be string or array'],
    [{ split: ['a', 5] }, ['split', 1], 'must be string'],
    [{ root: 'true' }, ['root'], 'must be boolean, 0 or 1'],
    [{ object: {} }, ['object', 'id'], 'Field required'],
    [{ object: [{ id: 1 }] }, ['object', 0, 'id'], 'must be string'],
  ])('reports only the alternative of a union that is closest: %j', (value, loc, msg) => {
    expect(check(unions, value)).toMatchObject([{ loc: ['body', ...loc], msg }]);
  });

  it('reports a value that must be null', () => {
    expect(check(Type.Object({ none: Type.Null() }), { none: 1 })).toMatchObject([{ msg: 'must be null' }]);
  });

  it('names the part of the request', () => {
    expect(check(Type.Object({ limit: Type.Integer() }), { limit: 'x' }, 'querystring')).toMatchObject([
      { loc: ['query', 'limit'] },
    ]);
    expect(check(Type.Object({ id: Uuid() }), { id: 'x' }, 'params')).toMatchObject([{ loc: ['path', 'id'] }]);
  });
});

describe('formats', () => {
  it.each([
    ['2024-02-29T00:00:00Z', true],
    ['2024-02-29T00:00:00.123456789+05:30', true],
    ['2024-02-29 23:59:59.5', true],
    ['2024-02-29T00:00', true],
    ['2024-02-29T00:00:00-0800', true],
    ['2023-02-29T00:00:00Z', false],
    ['2024-13-01T00:00:00Z', false],
    ['2024-04-31T00:00:00Z', false],
    ['2024-01-01T24:00:00Z', false],
    ['2024-01-01T00:60:00Z', false],
    ['2024-01-01', false],
    ['infinity', false],
    ['0000-01-01T00:00:00Z', false],
    ['1714351752000', false],
  ])('time %s: %s', (text, fits) => {
    expect(check(Timestamp(), text) === 'fits').toBe(fits);
  });

  it.each([
    ['text 😀', true],
    ['nul \0', false],
    ['half \ud83d', false],
    ['', true],
  ])('text %j: %s', (text, fits) => {
    expect(check(Text(), text) === 'fits').toBe(fits);
  });
});
