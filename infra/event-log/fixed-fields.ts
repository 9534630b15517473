/**
 * Reads and writes the fields of constant width that a framed record begins with (`Topic.fixed`), in place.
 * Positions are bytes from the beginning of the framed value. Source: Apache Avro 1.12, "Binary Encoding".
 */
import { type FixedKind, fixedWidthBytes, type Topic } from '../../schemas/topics.ts';
import { fault } from '../errors/runlake-error.ts';
import { prefixBytes } from './wire-format.ts';

/** Times between which a field may lie, in microseconds; both ends count. */
export type TimeBounds = Readonly<Partial<Record<FixedKind, readonly [earliestMicros: number, latestMicros: number]>>>;

/** Where the field of that name stands in a framed record of the topic. */
export function placeOf(topic: Topic, name: string): number {
  const field = topic.fixed.find((known) => known.name === name);
  if (field === undefined) throw fault('INTERNAL', {}, { cause: `${topic.name} has no fixed field ${name}` });
  return prefixBytes + field.at;
}

/** Says why the fixed fields cannot be read in place or hold what is never accepted, or nothing where all is well. */
export function fixedFieldsFault(framed: Buffer, topic: Topic, bounds: TimeBounds): string | undefined {
  const { fixed } = topic;
  const last = fixed.at(-1);
  if (last === undefined) return undefined;
  if (framed.length < prefixBytes + last.at + fixedWidthBytes[last.kind]) {
    return 'the record is shorter than its fields of constant width';
  }
  for (let index = 0; index < fixed.length; index++) {
    const { kind, at } = fixed[index] as (typeof fixed)[number];
    const why = faults[kind](framed, prefixBytes + at, bounds[kind]);
    if (why !== undefined) return why;
  }
  return undefined;
}

type Check = (framed: Buffer, at: number, bounds: TimeBounds[FixedKind]) => string | undefined;

const faults: Readonly<Record<FixedKind, Check>> = {
  uuid: uuidFault,
  key_time: timeFault,
  expiry: timeFault,
  time: timeFault,
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

/** A decimal without fraction in a `fixed` of eight bytes: two's complement, big end first. */
export function writePosition(framed: Buffer, at: number, position: number): void {
  framed.writeBigInt64BE(BigInt(position), at);
}

/** The earliest key time: its long takes eight bytes, as those of all later times to 3111 do. In December 1978. */
export const earliestKeyTimeMicros = 2 ** 48;

/** Whether the long at `at` takes eight bytes. */
export function isEightByteLong(framed: Buffer, at: number): boolean {
  for (let index = at; index < at + 7; index++) if (((framed[index] as number) & 0x80) === 0) return false;
  return ((framed[at + 7] as number) & 0x80) === 0;
}

const uuidLength = 0x48; // 36, zig-zag
/** What a byte is in a UUID, and what stands at each of its places: 1 for a digit, 2 for a dash. */
const kindOfByte = Uint8Array.from({ length: 256 }, (_, byte) =>
  byte === 0x2d ? 2 : '0123456789abcdef'.includes(String.fromCharCode(byte)) ? 1 : 0,
);
const kindAtPlace = Uint8Array.from({ length: 36 }, (_, place) => ([8, 13, 18, 23].includes(place) ? 2 : 1));

/** Keys are looked up as text, so one UUID must have one text. */
function uuidFault(framed: Buffer, at: number): string | undefined {
  if (framed[at] !== uuidLength) return 'an identifier is not 36 characters long';
  for (let place = 0; place < 36; place++) {
    const kind = kindOfByte[framed[at + 1 + place] as number];
    if (kind !== kindAtPlace[place]) return 'an identifier is not a UUID in small letters';
  }
  return undefined;
}

function timeFault(framed: Buffer, at: number, bounds: TimeBounds[FixedKind]): string | undefined {
  if (!isEightByteLong(framed, at)) return 'a time does not take eight bytes';
  if (bounds === undefined) return undefined;
  const micros = timeMicrosAt(framed, at);
  return micros < bounds[0] || micros > bounds[1] ? 'a time is outside the accepted range' : undefined;
}
