import type { ProtobufReader } from './protobuf-reader.ts';
import type { ByteRange } from './span.ts';

/**
 * Run ids of spans. They depend on the span alone, so that every split of a trace over requests gives the same runs:
 * the trace id is the 16 bytes of the OTel trace id as a UUID, a run id the 8 bytes of the span id after 8 zero bytes.
 * Source: docs/decisions/0020-otlp-ids.md; stock SDKs rely on the same form.
 */
export function traceUuid(reader: ProtobufReader, { start, end }: ByteRange): string | undefined {
  if (end - start !== 16) return undefined;
  const hex = reader.source.toString('hex', start, end);
  if (hex === '00000000000000000000000000000000') return undefined;
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** Undefined if the id is not 8 bytes long, or all zero. */
export function spanUuid(reader: ProtobufReader, { start, end }: ByteRange): string | undefined {
  if (end - start !== 8) return undefined;
  const hex = reader.source.toString('hex', start, end);
  if (hex === '0000000000000000') return undefined;
  return `00000000-0000-0000-${hex.slice(0, 4)}-${hex.slice(4)}`;
}

/** Whether the id is absent; some SDKs send eight zero bytes for "no parent". */
export function isNoId(reader: ProtobufReader, { start, end }: ByteRange): boolean {
  for (let index = start; index < end; index++) if (reader.source[index] !== 0) return false;
  return end === start || end - start === 8;
}
