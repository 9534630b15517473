import avsc from 'avsc';
import { prefixBytes } from './wire-format.ts';

/**
 * Decodes a framed record for display: bytes as text, times as ISO 8601, null fields omitted.
 * @returns undefined if the record does not match the schema to its last byte.
 */
export function readableRecord(framed: Buffer, schema: string): Record<string, unknown> | undefined {
  try {
    const parsed = JSON.parse(schema) as avsc.Schema;
    const times = timeFields(schema);
    const values = avsc.Type.forSchema(parsed, { noAnonymousTypes: false }).fromBuffer(framed.subarray(prefixBytes));
    const fields = Object.entries(values as Record<string, unknown>).filter(([, value]) => value !== null);
    return Object.fromEntries(fields.map(([name, value]) => [name, readable(value, times.has(name))]));
  } catch {
    return undefined;
  }
}

function readable(value: unknown, isTime: boolean): unknown {
  if (Buffer.isBuffer(value)) return value.toString('utf8');
  if (isTime && typeof value === 'number') {
    const milliseconds = Math.floor(value / 1_000);
    const micros = String(value - milliseconds * 1_000).padStart(3, '0');
    return new Date(milliseconds).toISOString().replace('Z', `${micros}Z`);
  }
  return value;
}

/** Names of the fields that hold microseconds since 1970. */
function timeFields(schema: string): Set<string> {
  const { fields } = JSON.parse(schema) as { fields: { name: string; type: unknown }[] };
  const times = fields.filter(({ type }) => JSON.stringify(type).includes('"timestamp-micros"'));
  return new Set(times.map(({ name }) => name));
}
