import { type PartLimit, partLimit } from './part-limit.ts';
import type { ProtobufReader } from './protobuf-reader.ts';
import type { ByteRange } from './span.ts';

/** The spans of one instrumentation scope of one resource, as ranges of the body. */
export interface ScopeSpans {
  readonly resource: ByteRange | undefined;
  readonly scope: ByteRange | undefined;
  readonly spans: readonly ByteRange[];
}

/**
 * Finds the spans of an ExportTraceServiceRequest: at most `maxParts` spans, scopes and resources each.
 * Field numbers: opentelemetry/proto/collector/trace/v1/trace_service.proto, trace/v1/trace.proto.
 *
 * @throws INVALID_PROTOBUF; TOO_MANY_PARTS when a limit is exceeded.
 */
export function decodeProtobuf(reader: ProtobufReader, maxParts: number): ScopeSpans[] {
  const scopes: ScopeSpans[] = [];
  const [resourceCount, scopeCount, spanCount] = [partLimit(maxParts), partLimit(maxParts), partLimit(maxParts)];
  const whole = { start: 0, end: reader.source.length };
  const { many: resourceSpans } = split(reader, whole, { one: 0, many: 0x0a }, resourceCount);
  for (const range of resourceSpans) {
    const { one: resource, many: scopeSpans } = split(reader, range, { one: 0x0a, many: 0x12 }, scopeCount);
    for (const inner of scopeSpans) {
      const { one: scope, many: spans } = split(reader, inner, { one: 0x0a, many: 0x12 }, spanCount);
      scopes.push({ resource, scope, spans });
    }
  }
  return scopes;
}

/** Reads a message with one optional and one repeated field, in any order. */
function split(
  reader: ProtobufReader,
  { start, end }: ByteRange,
  tags: { readonly one: number; readonly many: number },
  limit: PartLimit,
) {
  let one: ByteRange | undefined;
  const many: ByteRange[] = [];
  reader.seek(start, end);
  while (reader.more) {
    const tag = reader.tag();
    if (tag !== tags.one && tag !== tags.many) {
      reader.skip(tag);
      continue;
    }
    if (tag === tags.many) limit.add();
    const from = reader.delimited();
    const range = { start: from, end: reader.position };
    if (tag === tags.one) one = range;
    else many.push(range);
  }
  return { one, many };
}
