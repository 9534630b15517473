import type { ProtobufReader } from './protobuf-reader.ts';
import type { ByteRange } from './span.ts';

/** Spans of one instrumentation scope of one resource, as they lie in the body. */
export interface ScopeSpans {
  readonly resource: ByteRange | undefined;
  readonly scope: ByteRange | undefined;
  readonly spans: readonly ByteRange[];
}

/**
 * Finds the spans of an ExportTraceServiceRequest. Throws INVALID_PROTOBUF.
 * Field numbers: opentelemetry/proto/collector/trace/v1/trace_service.proto, trace/v1/trace.proto.
 */
export function decodeProtobuf(reader: ProtobufReader): ScopeSpans[] {
  const scopes: ScopeSpans[] = [];
  const { many: resourceSpans } = split(reader, { start: 0, end: reader.source.length }, 0, 0x0a);
  for (const range of resourceSpans) {
    const { one: resource, many: scopeSpans } = split(reader, range, 0x0a, 0x12);
    for (const inner of scopeSpans) {
      const { one: scope, many: spans } = split(reader, inner, 0x0a, 0x12);
      scopes.push({ resource, scope, spans });
    }
  }
  return scopes;
}

/** Reads a message of one optional and one repeated field, whatever their order. */
function split(reader: ProtobufReader, { start, end }: ByteRange, oneTag: number, manyTag: number) {
  let one: ByteRange | undefined;
  const many: ByteRange[] = [];
  reader.seek(start, end);
  while (reader.more) {
    const tag = reader.tag();
    if (tag !== oneTag && tag !== manyTag) {
      reader.skip(tag);
      continue;
    }
    const from = reader.delimited();
    const range = { start: from, end: reader.position };
    if (tag === oneTag) one = range;
    else many.push(range);
  }
  return { one, many };
}
