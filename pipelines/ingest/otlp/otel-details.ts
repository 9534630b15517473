import { readAttributes, writeObject } from './any-value.ts';
import type { JsonText } from './json-text.ts';
import type { ByteRange } from './span.ts';
import type { SpanContext } from './span-context.ts';

/** Span kinds by number. The default kind, internal, is omitted. */
const spanKinds = ['', '', 'server', 'client', 'producer', 'consumer'];

/**
 * Writes the member `otel` with the fields of a span that runs do not have: kind, trace state, links, counts of dropped
 * details, and the OTel ids if the run has other ids. Writes nothing if the span has none of these fields.
 */
export function writeOtel(context: SpanContext, hasOwnIds: boolean): void {
  const { out, span } = context;
  const before = out.position;
  out.ascii(',"otel":{');
  const inner = out.position;
  if (hasOwnIds) {
    writeHexMember(context, inner, 'trace_id', span.traceId);
    writeHexMember(context, inner, 'span_id', span.spanId);
    if (span.parentSpanId.end > span.parentSpanId.start) {
      writeHexMember(context, inner, 'parent_span_id', span.parentSpanId);
    }
  }
  const kind = spanKinds[span.kind];
  if (kind) {
    writeKey(out, inner, 'kind');
    out.ascii(`"${kind}"`);
  }
  if (span.traceState.end > span.traceState.start) {
    writeKey(out, inner, 'trace_state');
    context.writeString(span.traceState.start, span.traceState.end);
  }
  writeDroppedCount(out, inner, 'dropped_attributes_count', span.droppedAttributes);
  writeDroppedCount(out, inner, 'dropped_events_count', span.droppedEvents);
  writeDroppedCount(out, inner, 'dropped_links_count', span.droppedLinks);
  if (span.links.length > 0) {
    writeKey(out, inner, 'links');
    for (const [index, link] of span.links.entries()) {
      out.byte(index === 0 ? 0x5b : 0x2c);
      writeLink(context, link);
    }
    out.byte(0x5d);
  }
  if (out.position === inner) out.rewind(before);
  else out.byte(0x7d);
}

function writeDroppedCount(out: JsonText, inner: number, key: string, count: number): void {
  if (count === 0) return;
  writeKey(out, inner, key);
  out.ascii(String(count));
}

/** Writes a key; `inner` is the position of the object's first member. */
function writeKey(out: JsonText, inner: number, key: string): void {
  out.ascii(out.position === inner ? `"${key}":` : `,"${key}":`);
}

/** Writes a Link: the ids of the linked span in hex, its trace state and attributes. */
function writeLink(context: SpanContext, { start, end }: ByteRange): void {
  const { reader, out } = context;
  out.byte(0x7b);
  const inner = out.position;
  reader.seek(start, end);
  while (reader.more) {
    const tag = reader.tag();
    if (tag !== 0x0a && tag !== 0x12 && tag !== 0x1a) {
      reader.skip(tag);
      continue;
    }
    const from = reader.delimited();
    const range = { start: from, end: reader.position };
    if (tag === 0x0a) writeHexMember(context, inner, 'trace_id', range);
    else if (tag === 0x12) writeHexMember(context, inner, 'span_id', range);
    else if (range.end > from) {
      writeKey(out, inner, 'trace_state');
      context.writeString(from, range.end);
    }
  }
  const attributes = readAttributes(reader, start, end, 0x22);
  if (attributes.count > 0) {
    writeKey(out, inner, 'attributes');
    writeObject(context, attributes);
  }
  out.byte(0x7d);
}

function writeHexMember({ out, reader }: SpanContext, inner: number, key: string, { start, end }: ByteRange): void {
  writeKey(out, inner, key);
  out.ascii(`"${reader.source.toString('hex', start, end)}"`);
}
