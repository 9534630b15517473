import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { allTimes, type Order, type RunKey, type TimeWindow } from './run-columns.ts';

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

const dayMicros = 86_400_000_000;

/** Widths of the first four windows. The fifth window contains all remaining times. */
const windowWidthsMicros = [1, 8, 64, 512].map((days) => days * dayMicros);

/**
 * Divides `range` into consecutive windows in `order`, each wider than the one before. This bounds both the work of one
 * query and the number of queries.
 *
 * @param nowMicros If the order is `desc` and the range ends after this time, the windows are measured back from this
 *   time; the first window also contains the later times.
 */
export function* generateTimeWindows(range: TimeWindow, order: Order, nowMicros: number): Generator<TimeWindow> {
  let { fromMicros, untilMicrosExclusive } = range;
  let edge = order === 'desc' ? Math.min(untilMicrosExclusive, nowMicros) : fromMicros;
  for (const width of [...windowWidthsMicros, Number.POSITIVE_INFINITY]) {
    if (fromMicros >= untilMicrosExclusive) return;
    if (order === 'desc') {
      edge = Math.max(fromMicros, edge - width);
      yield { fromMicros: edge, untilMicrosExclusive };
      untilMicrosExclusive = edge;
    } else {
      edge = Math.min(untilMicrosExclusive, edge + width);
      yield { fromMicros, untilMicrosExclusive: edge };
      fromMicros = edge;
    }
  }
}
