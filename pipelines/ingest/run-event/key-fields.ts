import {
  fieldOffset,
  isEightByteLong,
  timeMicrosAt,
  uuidAt,
  writeTimeMicros,
  writeUuid,
} from '../../../infra/event-log/fixed-fields.ts';
import { fixedWidthBytes, runEvents } from '../../../schemas/topics.ts';

// Positions of the first fields of a framed run event. They have fixed widths, so that the sink reads and writes them
// in place.
const tenantAt = fieldOffset(runEvents, 'tenant_id');
const traceAt = fieldOffset(runEvents, 'trace_id');
const projectAt = fieldOffset(runEvents, 'session_id');
const traceTimeAt = fieldOffset(runEvents, 'trace_time');
/** The next field is a varint; for times from 1978 to 3111 it takes eight bytes too. */
const receivedAt = traceTimeAt + fixedWidthBytes.key_time;

/** Tenant and trace as one string, as a key for caches. */
export function traceKeyOf(framed: Buffer): string {
  return framed.toString('latin1', tenantAt + 1, traceAt + 37);
}
/** Builds the key that {@link traceKeyOf} reads; the `H` is the length byte of the second UUID: 36 in zig-zag. */
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

/** Acceptance time of the event, in microseconds since 1970; `undefined` if it cannot be read in place. */
export function receivedAtMicrosOf(framed: Buffer): number | undefined {
  if (framed.length < receivedAt + 8 || !isEightByteLong(framed, receivedAt)) return undefined;
  return timeMicrosAt(framed, receivedAt);
}

const scratch = Buffer.alloc(fixedWidthBytes.uuid + fixedWidthBytes.key_time);

/**
 * Calls `read` with the event as the client sent it. During the call, the project and the acceptance time are
 * overwritten with `mark` and zeros, because two API processes may set them differently for the same request.
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

/** A copy of the event with another project and trace time; the original is unchanged. */
export function withTraceLocation(framed: Buffer, projectId: string, traceTimeMicros: number): Buffer {
  const copy = Buffer.from(framed);
  writeUuid(copy, projectAt, projectId);
  writeTimeMicros(copy, traceTimeAt, traceTimeMicros);
  return copy;
}
