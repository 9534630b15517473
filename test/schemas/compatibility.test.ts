/**
 * Every schema of the log stays compatible with each of its released versions in both directions: during an upgrade,
 * old and new processes write and read the same topic, and the log keeps old records. The released versions are in
 * `pinned/`, as `<schema>.<number>.avsc`: a release that changes a schema adds the next version; existing files are
 * never edited.
 */
import { readdirSync, readFileSync } from 'node:fs';
import avsc from 'avsc';
import { describe, expect, test } from 'vitest';
import { listColumns } from '../../infra/event-log/avro-schema.ts';
import { runEvents, type Topic, topics } from '../../schemas/topics.ts';

const folder = new URL('pinned/', import.meta.url);
const versions = readdirSync(folder).map((file) => ({ file, schema: readFileSync(new URL(file, folder), 'utf8') }));
const nameOf = (schema: string) => (JSON.parse(schema) as { name: string }).name;
const listVersions = (topic: Topic) => versions.filter(({ schema }) => nameOf(schema) === nameOf(topic.schema));
const pairs = topics.flatMap((topic) => listVersions(topic).map(({ file, schema }) => ({ topic, file, schema })));

const parseType = (schema: string) => avsc.Type.forSchema(JSON.parse(schema));
/**
 * Checks two schemas.
 *
 * @throws if a reader of one schema cannot read records that a writer of the other schema wrote.
 */
function compare(one: string, other: string): void {
  parseType(one).createResolver(parseType(other));
  parseType(other).createResolver(parseType(one));
}

test('every schema has a released version, and every released version has a schema', () => {
  expect(topics.filter((topic) => listVersions(topic).length === 0)).toEqual([]);
  expect(pairs).toHaveLength(versions.length);
});

describe.each(pairs)('$topic.name and $file', ({ topic, schema }) => {
  test('can read each other', () => {
    expect(() => compare(topic.schema, schema)).not.toThrow();
  });

  test('have the same leading fields of constant width, which the sink reads and writes in place', () => {
    expect(listColumns(schema, topic)).toEqual(JSON.parse(schema).fields.map(({ name }: { name: string }) => name));
  });

  test('read random records of each other, with the same values for common fields', () => {
    for (const [writer, reader] of [
      [parseType(topic.schema), parseType(schema)],
      [parseType(schema), parseType(topic.schema)],
    ] as const) {
      const record = writer.random() as unknown as Record<string, unknown>;
      const read = reader.fromBuffer(writer.toBuffer(record), reader.createResolver(writer)) as Record<string, unknown>;
      for (const [name, value] of Object.entries(read)) {
        if (name in record) expect(value, name).toEqual(record[name]);
        else expect(value, name).toBeNull();
      }
    }
  });
});

type Fields = { name: string; type: unknown; default?: unknown }[];
const changed = (change: (fields: Fields) => Fields) => {
  const schema = JSON.parse(runEvents.schema) as { fields: Fields };
  return JSON.stringify({ ...schema, fields: change(schema.fields) });
};

test.each<[string, (fields: Fields) => Fields, boolean]>([
  [
    'one additional optional field',
    (fields) => [...fields, { name: 'x', type: ['null', 'string'], default: null }],
    true,
  ],
  ['an optional field less', (fields) => fields.slice(0, -1), true],
  ['one additional required field', (fields) => [...fields, { name: 'x', type: 'string' }], false],
  ['a required field less', (fields) => fields.filter(({ name }) => name !== 'key_id'), false],
  [
    'another type',
    (fields) => fields.map((field) => (field.name === 'key_id' ? { ...field, type: 'long' } : field)),
    false,
  ],
])('the comparison detects the compatibility of %s', (_, change, compatible) => {
  const attempt = expect(() => compare(changed(change), runEvents.schema));
  if (compatible) attempt.not.toThrow();
  else attempt.toThrow();
});
