/**
 * Reads and writes, in place, the fixed-width fields at the beginning of a framed record (`Topic.fixed`).
 * Positions are byte offsets in the framed value. Source: Apache Avro 1.12, "Binary Encoding".
 */
import { type FixedKind, fixedWidthBytes, type Topic } from '../../schemas/topics.ts';
import { runlakeError } from '../errors/runlake-error.ts';
import { prefixBytes } from './wire-format.ts';

/** Accepted range of a time field by kind of field, in microseconds since 1970, both ends inclusive. */
export type TimeBounds = Readonly<Partial<Record<FixedKind, readonly [earliestMicros: number, latestMicros: number]>>>;

/** Byte offset of a field in a framed record of the topic. @throws INTERNAL if the topic has no such field. */
export function fieldOffset(topic: Topic, name: string): number {
  const field = topic.fixed.find((known) => known.name === name);
  if (field === undefined) throw runlakeError('INTERNAL', {}, { cause: `${topic.name} has no fixed field ${name}` });
  return prefixBytes + field.at;
}

/** Returns why the fixed-width fields cannot be read in place or hold an invalid value, or undefined if they are valid. */
export function fixedFieldsError(framed: Buffer, topic: Topic, bounds: TimeBounds): string | undefined {
  const { fixed } = topic;
  const last = fixed.at(-1);
  if (last === undefined) return undefined;
  if (framed.length < prefixBytes + last.at + fixedWidthBytes[last.kind]) {
    return 'the record is shorter than its fields of constant width';
  }
  for (let index = 0; index < fixed.length; index++) {
    const { kind, at } = fixed[index] as (typeof fixed)[number];
    const reason = checks[kind](framed, prefixBytes + at, bounds[kind]);
    if (reason !== undefined) return reason;
  }
  return undefined;
}

type Check = (framed: Buffer, at: number, bounds: TimeBounds[FixedKind]) => string | undefined;

const checks: Readonly<Record<FixedKind, Check>> = {
  uuid: uuidError,
  key_time: timeError,
  expiry: timeError,
  time: timeError,
  position: () => undefined,
  flag: (framed, at) => ((framed[at] as number) <= 1 ? undefined : 'a flag is neither true nor false'),
};

export function uuidAt(framed: Buffer, at: number): string {
  return framed.toString('latin1', at + 1, at + 37);
}

export function writeUuid(framed: Buffer, at: number, uuid: string): void {
  framed.write(uuid, at + 1, 36, 'latin1');
}

export function flagAt(framed: Buffer, at: number): boolean {
  return framed[at] === 1;
}

export function timeMicrosAt(framed: Buffer, at: number): number {
  let value = 0;
  for (let index = at + 7; index >= at; index--) value = value * 128 + ((framed[index] as number) & 0x7f);
  return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
}

export function writeTimeMicros(framed: Buffer, at: number, micros: number): void {
  let rest = micros * 2;
  for (let index = at; index < at + 7; index++) {
    framed[index] = (rest % 128) | 0x80;
    rest = Math.floor(rest / 128);
  }
  framed[at + 7] = rest;
}

/** Writes a decimal without fraction into a `fixed` of eight bytes: big-endian two's complement. */
export function writePosition(framed: Buffer, at: number, position: number): void {
  framed.writeBigInt64BE(BigInt(position), at);
}

/** The earliest key time, in December 1978. From here to the year 3111 the varint of a time takes eight bytes. */
export const earliestKeyTimeMicros = 2 ** 48;

/** Whether the varint at `at` takes eight bytes. */
export function isEightByteLong(framed: Buffer, at: number): boolean {
  for (let index = at; index < at + 7; index++) if (((framed[index] as number) & 0x80) === 0) return false;
  return ((framed[at + 7] as number) & 0x80) === 0;
}

const uuidLength = 0x48; // 36, zig-zag
/** Kind of a byte in a UUID, and the kind expected at each position: 1 for a digit, 2 for a dash. */
const kindOfByte = Uint8Array.from({ length: 256 }, (_, byte) =>
  byte === 0x2d ? 2 : '0123456789abcdef'.includes(String.fromCharCode(byte)) ? 1 : 0,
);
const kindAtPosition = Uint8Array.from({ length: 36 }, (_, position) => ([8, 13, 18, 23].includes(position) ? 2 : 1));

/** Lookups compare keys as text, so each UUID must have one spelling. */
function uuidError(framed: Buffer, at: number): string | undefined {
  if (framed[at] !== uuidLength) return 'an identifier is not 36 characters long';
  for (let position = 0; position < 36; position++) {
    const kind = kindOfByte[framed[at + 1 + position] as number];
    if (kind !== kindAtPosition[position]) return 'an identifier is not a UUID in lower case';
  }
  return undefined;
}

function timeError(framed: Buffer, at: number, bounds: TimeBounds[FixedKind]): string | undefined {
  if (!isEightByteLong(framed, at)) return 'a time does not take eight bytes';
  if (bounds === undefined) return undefined;
  const micros = timeMicrosAt(framed, at);
  return micros < bounds[0] || micros > bounds[1] ? 'a time is outside the accepted range' : undefined;
}
