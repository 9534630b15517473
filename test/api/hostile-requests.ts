import type { TSchema } from 'typebox';
import type { Operation } from '../../api/server/operation.ts';

/** A malformed or hostile request. */
export interface HostileRequest {
  readonly what: string;
  readonly method: string;
  /** Path and query, as bytes of the request line. */
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array<ArrayBuffer>;
}

/** Valid ids by field name, so that a request passes the existence checks. */
export type KnownValues = Readonly<Record<string, unknown>>;

interface JsonSchema {
  readonly type?: string | readonly string[];
  readonly format?: string;
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly minimum?: number;
  readonly anyOf?: readonly JsonSchema[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly items?: JsonSchema;
  readonly minItems?: number;
}

const uuid = '0b1f7a5e-0000-4000-8000-000000000000';
const nested = (depth: number) => JSON.parse(`${'['.repeat(depth)}${']'.repeat(depth)}`) as unknown;

/** JSON of each type, and strings and numbers that stores reject. */
const hostileValues: readonly unknown[] = [
  ...[null, true, 0, -1, 0.5, 1e308, -1e308, 2 ** 31, 2 ** 53, 1e21],
  ...[
    '',
    'x',
    uuid,
    '\0',
    'a\0b',
    '\ud800',
    'a\udfff',
    '\u{10ffff}',
    'x'.repeat(70_000),
    "'; DROP TABLE runs; --",
    '%s{0}$1',
  ],
  ...[
    '9999-12-31T23:59:59Z',
    '9999-12-31T23:59:59.9999999Z',
    '0001-01-01T00:00:00Z',
    '2026-02-30',
    'NaN',
    'Infinity',
    '-0',
    '1e999',
    '__proto__',
  ],
  ...[
    [],
    [null],
    ['\0'],
    ['\ud800'],
    [uuid],
    [[1]],
    {},
    { '\0': '\0' },
    { '\ud800': { a: ['\0'] } },
    { a: { b: '\0' } },
  ],
  ...[{ constructor: { prototype: null } }, JSON.parse('{"__proto__": {"x": "\\u0000"}}'), nested(200), { $gt: '' }],
];

const hostileParts = [
  ...[
    '%',
    '%zz',
    '%00',
    'a%00b',
    '%ff',
    '%ed%a0%80',
    '%c0%af',
    '..%2f..',
    '%2f',
    '%3f',
    "'",
    '%0d%0a',
    '*',
    '-1',
    '0',
    '1e999',
  ],
  ...['__proto__', 'constructor', 'null', 'undefined', '99999999999999999999', 'x'.repeat(5_000), '%f0%9f%98%80', uuid],
];

/** Returns a value that satisfies the schema, as far as the schema's type and format define it. */
function validValue(schema: JsonSchema, name: string, known: KnownValues): unknown {
  if (Object.hasOwn(known, name)) return known[name];
  if (schema.const !== undefined) return schema.const;
  if (schema.enum) return schema.enum[0];
  if (schema.anyOf) return validValue(schema.anyOf[0] as JsonSchema, name, known);
  switch (schema.type) {
    case 'string':
      if (schema.format === 'uuid') return uuid;
      if (schema.format === 'date-time') return '2026-03-05T00:00:00Z';
      return schema.format === 'email' ? 'a@example.com' : 'x';
    case 'integer':
    case 'number':
      return Math.max(schema.minimum ?? 1, 1);
    case 'boolean':
      return false;
    case 'array':
      return schema.minItems ? [validValue(schema.items ?? {}, name, known)] : [];
    case 'object':
      return Object.fromEntries(
        (schema.required ?? []).map((field) => [field, validValue(schema.properties?.[field] ?? {}, field, known)]),
      );
    default:
      return {};
  }
}

/** Returns the fields of a schema as paths, including those of nested objects and arrays. */
function fieldsOf(schema: JsonSchema, depth = 3): readonly (readonly (string | number)[])[] {
  if (depth === 0) return [];
  return [
    ...(schema.anyOf ?? []).flatMap((each) => fieldsOf(each, depth)),
    ...Object.entries(schema.properties ?? {}).flatMap(([name, of]) => [
      [name],
      ...fieldsOf(of, depth - 1).map((path) => [name, ...path]),
    ]),
    ...(schema.items ? [[0], ...fieldsOf(schema.items, depth - 1).map((path) => [0, ...path])] : []),
  ];
}

function setField(base: unknown, [first, ...rest]: readonly (string | number)[], value: unknown): unknown {
  if (first === undefined) return value;
  if (typeof first === 'number') return [setField(Array.isArray(base) ? base[0] : {}, rest, value)];
  const fields = typeof base === 'object' && base !== null && !Array.isArray(base) ? base : {};
  return { ...fields, [first]: setField((fields as Record<string, unknown>)[first], rest, value) };
}

const asText = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));
const encoded = (text: string) => encodeURIComponent(text.toWellFormed()).slice(0, 8_000);

/** Yields requests of `operation`, each with one part replaced by a hostile value. */
export function* hostileRequests(operation: Operation, known: KnownValues): Generator<HostileRequest> {
  const { method, path, schema, operationId, rawBody } = operation;
  const params = (schema.params ?? {}) as JsonSchema;
  const query = (schema.query ?? {}) as JsonSchema;
  const json = { 'content-type': 'application/json' };
  const encodeParam = (name: string) => encoded(asText(validValue(params.properties?.[name] ?? {}, name, known)));
  const buildPath = (replaced?: string, part = '') =>
    path
      .replaceAll(/:(\w+)/g, (_, name: string) => (name === replaced ? part : encodeParam(name)))
      .replace('*', part || 'x');
  const search = new URLSearchParams(
    (query.required ?? []).map((name): [string, string] => [
      name,
      asText(validValue(query.properties?.[name] ?? {}, name, known)),
    ]),
  ).toString();
  const url = `${buildPath()}${search && `?${search}`}`;
  const bodySchema = (rawBody ? undefined : schema.body) as (TSchema & JsonSchema) | undefined;
  const base = bodySchema && validValue(bodySchema, '', known);
  const body = base === undefined ? undefined : JSON.stringify(base);
  const plain = { method, target: url, headers: body === undefined ? {} : json, ...(body !== undefined && { body }) };

  yield { ...plain, what: operationId };
  for (const [name] of [...path.matchAll(/:(\w+)|\*/g)].map((match) => [match[1]])) {
    for (const part of hostileParts) {
      yield {
        ...plain,
        what: `${operationId}: path ${name}`,
        target: `${buildPath(name, part)}${search && `?${search}`}`,
      };
    }
  }
  for (const name of [...Object.keys(query.properties ?? {}), 'unknown']) {
    const and = search ? `${url}&` : `${url}?`;
    for (const part of hostileParts) {
      yield { ...plain, what: `${operationId}: query ${name}`, target: `${and}${name}=${part}&${name}=${part}` };
      yield { ...plain, what: `${operationId}: query ${name}`, target: `${buildPath()}?${name}=${part}` };
    }
  }
  for (const part of [
    '?%',
    '?%zz=%zz',
    '?&&&===',
    `?${'a[b]'.repeat(50)}=1`,
    '?__proto__[x]=1',
    '?%00=%00',
    '#x',
    '?x=\xff',
  ]) {
    yield { ...plain, what: `${operationId}: query`, target: `${buildPath()}${part}` };
  }
  const hostileHeaders: readonly [string, Record<string, string>][] = [
    ['key', { 'x-api-key': 'x'.repeat(10_000) }],
    ['key', { 'x-api-key': '\u00ff\u00fe' }],
    ['tenant', { 'x-tenant-id': '%00' }],
    ['tenant', { 'x-tenant-id': 'x'.repeat(10_000) }],
    ['organization', { 'x-organization-id': "'" }],
    ['authorization', { authorization: 'Bearer \u00ff' }],
    ['accept', { accept: ',;=q' }],
    ['last event', { 'last-event-id': '\u00ff-99999999999999999999' }],
    ['traceparent', { traceparent: '00-zz-zz-zz' }],
    ['range', { range: 'bytes=9-1,zz' }],
    ['origin', { origin: 'null\u00ff' }],
    ['if-match', { 'if-none-match': '"' }],
    ['encoding', { 'content-encoding': 'zstd, gzip, x' }],
    ['prefer', { prefer: 'wait=1e999' }],
  ];
  for (const [what, headers] of hostileHeaders)
    yield { ...plain, what: `${operationId}: header ${what}`, headers: { ...plain.headers, ...headers } };
  if (method === 'GET') return;
  const types = [
    '',
    'application/json; charset=utf-16',
    'text/html',
    'multipart/form-data',
    'multipart/form-data; boundary="',
    'x',
    ';;',
    'application/x-protobuf',
    'application/cbor',
  ];
  const bodies = [
    ...[
      '',
      '{',
      '[',
      '"',
      'nul',
      '{"a":1}}',
      '[]',
      'null',
      '0',
      '"x"',
      '{"a":1,"a":2}',
      '\ufeff{}',
      `${'{"a":'.repeat(9_000)}1${'}'.repeat(9_000)}`,
    ],
    ...[
      '{"a":1e999999}',
      '{"\\u0000":"\\u0000"}',
      '{"a":"\\ud800"}',
      '--x\r\n\r\n--x--',
      Uint8Array.of(0xff, 0xfe, 0),
      Uint8Array.of(0x1f, 0x8b, 8, 0),
    ],
  ];
  for (const content of bodies) {
    yield { ...plain, what: `${operationId}: body ${String(content).slice(0, 20)}`, headers: json, body: content };
    for (const type of bodies.indexOf(content) % 4 === 1 ? types : []) {
      yield { ...plain, what: `${operationId}: body of ${type}`, headers: { 'content-type': type }, body: content };
    }
  }
  if (bodySchema === undefined) return;
  for (const value of hostileValues) {
    yield { ...plain, what: `${operationId}: body`, body: JSON.stringify(value) };
  }
  for (const field of fieldsOf(bodySchema)) {
    for (const value of hostileValues) {
      const changed = JSON.stringify(setField(base, field, value));
      yield { ...plain, what: `${operationId}: ${field.join('.')} = ${asText(value)?.slice(0, 40)}`, body: changed };
    }
  }
}
