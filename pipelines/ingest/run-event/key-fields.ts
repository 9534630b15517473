import { prefixBytes } from '../../../infra/event-log/wire-format.ts';

/**
 * The first fields of a framed run event, which have constant widths so that the sink reads and writes them in place:
 * tenant, trace, run and project as one length byte and 36 characters each, two times as eight bytes each.
 */
const uuidLength = 0x48; // 36, zig-zag
const tenantAt = prefixBytes;
const traceAt = tenantAt + 37;
const runAt = traceAt + 37;
const projectAt = runAt + 37;
const startTimeAt = projectAt + 37;
const traceTimeAt = startTimeAt + 8;
const keyFieldsEnd = traceTimeAt + 8;
/** The next field; of any width, but times of these decades take eight bytes too. */
const receivedAt = keyFieldsEnd;

/** Says why the key fields cannot be read in place, or nothing where they can. */
export function keyFieldsFault(framed: Buffer): string | undefined {
  if (framed.length < keyFieldsEnd) return 'the record is shorter than its key fields';
  for (const at of [tenantAt, traceAt, runAt, projectAt]) {
    if (framed[at] !== uuidLength) return 'an identifier is not 36 characters long';
    if (!isUuidText(framed, at + 1)) return 'an identifier is not a UUID in small letters';
  }
  return isEightByteLong(framed, startTimeAt) && isEightByteLong(framed, traceTimeAt)
    ? undefined
    : 'a key time does not take eight bytes';
}

/** Tenant and trace as one string, to look the trace up. */
export function traceKeyOf(framed: Buffer): string {
  return framed.toString('latin1', tenantAt + 1, traceAt + 37);
}
/** What {@link traceKeyOf} reads, put together: the length byte of the second UUID stands between the two. */
export function traceKey(tenantId: string, traceId: string): string {
  return `${tenantId}${String.fromCharCode(uuidLength)}${traceId}`;
}
export function tenantIdOf(framed: Buffer): string {
  return framed.toString('latin1', tenantAt + 1, tenantAt + 37);
}
export function traceIdOf(framed: Buffer): string {
  return framed.toString('latin1', traceAt + 1, traceAt + 37);
}
export function projectIdOf(framed: Buffer): string {
  return framed.toString('latin1', projectAt + 1, projectAt + 37);
}
export function startTimeMicrosOf(framed: Buffer): number {
  return readEightByteLong(framed, startTimeAt);
}
export function traceTimeMicrosOf(framed: Buffer): number {
  return readEightByteLong(framed, traceTimeAt);
}

/** When the event was accepted, for metrics; `undefined` where that cannot be read in place. */
export function receivedAtMicrosOf(framed: Buffer): number | undefined {
  if (framed.length < receivedAt + 8 || !isEightByteLong(framed, receivedAt)) return undefined;
  return readEightByteLong(framed, receivedAt);
}

/** A copy of the event that lies in `projectId` at `traceTimeMicros`; the original stays as it came. */
export function placedAt(framed: Buffer, projectId: string, traceTimeMicros: number): Buffer {
  const copy = Buffer.from(framed);
  copy.write(projectId, projectAt + 1, 36, 'latin1');
  writeEightByteLong(copy, traceTimeAt, traceTimeMicros);
  return copy;
}

/** What stands at each place of a UUID: a dash, or a digit (of which `isDigit` tells). */
const dashes = new Set([8, 13, 18, 23]);
const isDash = Array.from({ length: 36 }, (_, place) => dashes.has(place));
const isDigit = Array.from({ length: 256 }, (_, code) => '0123456789abcdef'.includes(String.fromCharCode(code)));

/** Keys are looked up as text, so one UUID must have one text. */
function isUuidText(bytes: Buffer, at: number): boolean {
  for (let place = 0; place < 36; place++) {
    const byte = bytes[at + place] as number;
    if (isDash[place] ? byte !== 0x2d : !isDigit[byte]) return false;
  }
  return true;
}

function isEightByteLong(bytes: Buffer, at: number): boolean {
  for (let index = at; index < at + 7; index++) if (((bytes[index] as number) & 0x80) === 0) return false;
  return ((bytes[at + 7] as number) & 0x80) === 0;
}

function readEightByteLong(bytes: Buffer, at: number): number {
  let value = 0;
  for (let index = at + 7; index >= at; index--) value = value * 128 + ((bytes[index] as number) & 0x7f);
  return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
}

function writeEightByteLong(bytes: Buffer, at: number, value: number): void {
  let rest = value * 2;
  for (let index = at; index < at + 7; index++) {
    bytes[index] = (rest % 128) | 0x80;
    rest = Math.floor(rest / 128);
  }
  bytes[at + 7] = rest;
}
