import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { allTimes, type Order, type RunKey } from './run-columns.ts';

/** The last run of a page. The next page begins after this run, even if other runs have been stored in the meantime. */
export interface PageCursor {
  readonly order: Order;
  readonly after: RunKey;
}

const cursorVersion = 1;
const cursorBytes = 58;

/**
 * Encodes version, order, key time, project, trace and run in 58 bytes as base64url. A cursor is a position and grants
 * no access: it is only compared with runs of the caller's workspace.
 */
export function writeCursor({ order, after }: PageCursor): string {
  const bytes = Buffer.alloc(cursorBytes);
  bytes[0] = cursorVersion;
  bytes[1] = order === 'desc' ? 0 : 1;
  bytes.writeBigInt64BE(BigInt(after.startTimeMicros), 2);
  writeUuid(bytes, 10, after.projectId);
  writeUuid(bytes, 26, after.traceId);
  writeUuid(bytes, 42, after.runId);
  return bytes.toString('base64url');
}

/**
 * Decodes a cursor.
 *
 * @throws BAD_REQUEST if `text` is not a valid cursor, or was issued for a query in another order.
 */
export function readCursor(text: string, order: Order): PageCursor {
  const bytes = Buffer.from(text, 'base64url');
  // The decoder ignores invalid characters; encoding again detects them.
  if (bytes.length !== cursorBytes || bytes[0] !== cursorVersion || bytes.toString('base64url') !== text)
    throw createMalformedError();
  const micros = bytes.readBigInt64BE(2);
  if (bytes[1]! > 1 || micros < 0n || micros >= BigInt(allTimes.untilMicrosExclusive)) throw createMalformedError();
  if ((bytes[1] === 0 ? 'desc' : 'asc') !== order) {
    throw runlakeError('BAD_REQUEST', { reason: 'The cursor belongs to a query in another order.' });
  }
  const after: RunKey = {
    startTimeMicros: Number(micros),
    projectId: readUuid(bytes, 10),
    traceId: readUuid(bytes, 26),
    runId: readUuid(bytes, 42),
  };
  return { order, after };
}

function createMalformedError(): Error {
  return runlakeError('BAD_REQUEST', { reason: 'The cursor was not issued by this server.' });
}

function writeUuid(bytes: Buffer, at: number, uuid: string): void {
  bytes.write(uuid.replaceAll('-', ''), at, 16, 'hex');
}

function readUuid(bytes: Buffer, at: number): string {
  const hex = bytes.toString('hex', at, at + 16);
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
