/**
 * Functions that parse Avro schemas. This file loads `avsc`. It must therefore not be imported by modules that are
 * loaded at every startup.
 */
import avsc from 'avsc';
// The typings of `avsc` omit the read position. This file needs the position to skip values without decoding them.
import avscInternals from 'avsc/lib/utils.js';
import type { Topic } from '../../schemas/topics.ts';
import { prefixBytes } from './avro.ts';

interface Tap {
  pos: number;
}
interface SkippableType {
  _skip(tap: Tap): void;
}

/** Returns the reason why a framed record does not match the schema, or undefined if the whole record matches. */
export type RecordValidator = (framed: Buffer) => string | undefined;

/**
 * Compiles `schema` to a function that checks records without decoding them. ClickHouse silently accepts trailing
 * bytes, wrong union branches and short records; therefore the sink checks every record before it inserts the record.
 */
export function compileRecordValidator(schema: string): RecordValidator {
  const type = avsc.Type.forSchema(JSON.parse(schema)) as unknown as SkippableType;
  const { Tap } = avscInternals as unknown as { Tap: new (buffer: Buffer, position: number) => Tap };
  return (framed) => {
    const tap = new Tap(framed, prefixBytes);
    try {
      type._skip(tap);
    } catch {
      return 'a union branch or length is not one of the schema';
    }
    if (tap.pos === framed.length) return undefined;
    return tap.pos > framed.length ? 'the record ends early' : `${framed.length - tap.pos} bytes follow the record`;
  };
}

/**
 * Returns the field names of `schema` in order. The schema may come from a different release than the topic's own
 * schema.
 *
 * @returns undefined if the schema describes another record type. Also returns undefined if a fixed-width field has a
 *   different position or type than in the topic's own schema, because the sink would then read and write the wrong
 *   bytes.
 */
export function listColumns(schema: string, topic: Topic): string[] | undefined {
  const own = parseRecordType(topic.schema);
  const given = parseRecordType(schema);
  if (own === undefined || given === undefined || given.name !== own.name) return undefined;
  const hasSameStart = topic.fixed.every(({ name }, index) => {
    const [one, other] = [own.fields[index], given.fields[index]];
    return other?.name === name && JSON.stringify(one?.type.schema()) === JSON.stringify(other.type.schema());
  });
  return hasSameStart ? given.fields.map(({ name }) => name) : undefined;
}

function parseRecordType(schema: string): avsc.types.RecordType | undefined {
  try {
    const type = avsc.Type.forSchema(JSON.parse(schema));
    return type instanceof avsc.types.RecordType ? type : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Decodes a framed record for display. Bytes are shown as text and times as ISO 8601; null fields are omitted.
 *
 * @returns undefined if the record does not match the schema completely.
 */
export function toReadableRecord(framed: Buffer, schema: string): Record<string, unknown> | undefined {
  try {
    const parsed = JSON.parse(schema) as { fields: { name: string; type: avsc.Schema }[] };
    const type = avsc.Type.forSchema(parsed as avsc.Schema, { noAnonymousTypes: false });
    const values = type.fromBuffer(framed.subarray(prefixBytes)) as Record<string, unknown>;
    const presentFields = parsed.fields.filter(({ name }) => values[name] !== null);
    return Object.fromEntries(presentFields.map((field) => [field.name, toReadable(values[field.name], field.type)]));
  } catch {
    return undefined;
  }
}

function toReadable(value: unknown, type: avsc.Schema): unknown {
  if (Buffer.isBuffer(value)) return value.toString('utf8');
  if (typeof value !== 'number' || !JSON.stringify(type).includes('"timestamp-micros"')) return value;
  const milliseconds = Math.floor(value / 1_000);
  const micros = String(value - milliseconds * 1_000).padStart(3, '0');
  return new Date(milliseconds).toISOString().replace('Z', `${micros}Z`);
}
