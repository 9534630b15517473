import {
  isEightByteLong,
  placeOf,
  timeMicrosAt,
  uuidAt,
  writeTimeMicros,
  writeUuid,
} from '../../../infra/event-log/fixed-fields.ts';
import { fixedWidthBytes, runEvents } from '../../../schemas/topics.ts';

// The first fields of a framed run event, which have constant widths so that the sink reads and writes them in place.
const tenantAt = placeOf(runEvents, 'tenant_id');
const traceAt = placeOf(runEvents, 'trace_id');
const projectAt = placeOf(runEvents, 'session_id');
const traceTimeAt = placeOf(runEvents, 'trace_time');
/** The next field; of any width, but times of these decades take eight bytes too. */
const receivedAt = traceTimeAt + fixedWidthBytes.key_time;

/** Tenant and trace as one string, to look the trace up. */
export function traceKeyOf(framed: Buffer): string {
  return framed.toString('latin1', tenantAt + 1, traceAt + 37);
}
/** What {@link traceKeyOf} reads, put together: the length byte of the second UUID stands between the two, 36 in zig-zag. */
export function traceKey(tenantId: string, traceId: string): string {
  return `${tenantId}H${traceId}`;
}
export function tenantIdOf(framed: Buffer): string {
  return uuidAt(framed, tenantAt);
}
export function traceIdOf(framed: Buffer): string {
  return uuidAt(framed, traceAt);
}
export function projectIdOf(framed: Buffer): string {
  return uuidAt(framed, projectAt);
}
export function traceTimeMicrosOf(framed: Buffer): number {
  return timeMicrosAt(framed, traceTimeAt);
}

/** When the event was accepted, for metrics; `undefined` where that cannot be read in place. */
export function receivedAtMicrosOf(framed: Buffer): number | undefined {
  if (framed.length < receivedAt + 8 || !isEightByteLong(framed, receivedAt)) return undefined;
  return timeMicrosAt(framed, receivedAt);
}

const scratch = Buffer.alloc(fixedWidthBytes.uuid + fixedWidthBytes.key_time);

/**
 * Calls `read` with the event as a client sent it: the project and the time of acceptance, which two API processes may set differently
 * for one request, are overwritten with `mark` during the call.
 */
export function withoutAcceptance<Result>(framed: Buffer, mark: number, read: (bytes: Buffer) => Result): Result {
  framed.copy(scratch, 0, projectAt, projectAt + fixedWidthBytes.uuid);
  framed.copy(scratch, fixedWidthBytes.uuid, receivedAt, receivedAt + fixedWidthBytes.key_time);
  framed.fill(0, projectAt, projectAt + fixedWidthBytes.uuid);
  framed.fill(0, receivedAt, receivedAt + fixedWidthBytes.key_time);
  framed.writeUInt32BE(mark, projectAt);
  try {
    return read(framed);
  } finally {
    scratch.copy(framed, projectAt, 0, fixedWidthBytes.uuid);
    scratch.copy(framed, receivedAt, fixedWidthBytes.uuid);
  }
}

/** A copy of the event that lies in `projectId` at `traceTimeMicros`; the original stays as it came. */
export function placedAt(framed: Buffer, projectId: string, traceTimeMicros: number): Buffer {
  const copy = Buffer.from(framed);
  writeUuid(copy, projectAt, projectId);
  writeTimeMicros(copy, traceTimeAt, traceTimeMicros);
  return copy;
}
