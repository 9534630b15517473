import { randomFillSync } from 'node:crypto';

let lastMs = 0;
let counter = 0;

/**
 * Returns a version 7 UUID in lower case: milliseconds since 1970, a 12-bit counter, and 62 random bits. Ids of one
 * process increase strictly, even within a millisecond or if the clock goes back. Source: RFC 9562, 5.7 and 6.2, method
 * 1.
 */
export function uuidv7(nowMs: number = Date.now()): string {
  const bytes = randomFillSync(Buffer.alloc(16));
  if (nowMs > lastMs) {
    lastMs = nowMs;
    // The high bit stays 0, so that the counter has room to increase.
    counter = bytes.readUInt16BE(6) & 0x7ff;
  } else if (++counter > 0xfff) {
    lastMs += 1;
    counter = 0;
  }
  bytes.writeUIntBE(lastMs, 0, 6);
  bytes.writeUInt16BE(0x7000 | counter, 6);
  bytes[8] = ((bytes[8] as number) & 0x3f) | 0x80;
  return uuidText(bytes);
}

export function uuidText(bytes: Buffer): string {
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
