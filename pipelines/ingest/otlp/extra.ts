import { readAttributes, writeObject, writeUnwrapped } from './any-value.ts';
import { embeddedMembers } from './embedded-json.ts';
import { writeMetadata } from './metadata.ts';
import { headOf } from './scalars.ts';
import type { SharedMetadata } from './shared-metadata.ts';
import type { ByteRange } from './span.ts';
import type { SpanContext } from './span-context.ts';

/** By number; internal, the ordinary kind, is not said. */
const spanKinds = ['', '', 'server', 'client', 'producer', 'consumer'];

/**
 * Writes the run's `extra`: `metadata`, the `invocation_params` of a model call, the SDK's `runtime`, and under `otel` what
 * only OpenTelemetry knows (span kind, trace state, links, what its SDK dropped, ids that a run does not carry).
 */
export function writeExtra(context: SpanContext, shared: SharedMetadata, hasOwnIds: boolean): Buffer {
  const { out, span } = context;
  const start = out.position;
  out.byte(0x7b);
  writeParameters(context, start + 1);
  const runtime = span.find('runtime');
  if (runtime >= 0) {
    out.ascii(out.position === start + 1 ? '"runtime":' : ',"runtime":');
    writeUnwrapped(context, span.attributes.valueStarts[runtime]!, span.attributes.valueEnds[runtime]!);
    span.take(runtime);
  }
  out.ascii(out.position === start + 1 ? '"metadata":' : ',"metadata":');
  // Last of the attributes, because it takes what the others left.
  writeMetadata(context, shared);
  writeOtel(context, hasOwnIds);
  out.byte(0x7d);
  return out.since(start);
}

function writeParameters(context: SpanContext, start: number): void {
  const { out, span, reader } = context;
  const before = out.position;
  const seen = new Set<string>();
  const begin = (key: string): boolean => {
    if (seen.has(key)) return false;
    out.ascii(seen.size > 0 ? ',' : before === start ? '"invocation_params":{' : ',"invocation_params":{');
    seen.add(key);
    return true;
  };
  const whole = span.find('parameters');
  if (whole >= 0) {
    const { kind, start: from, end: to } = headOf(context, whole);
    const members = kind === 'string' ? embeddedMembers(reader.source, from, to, context.maxJsonDepth) : undefined;
    if (members !== undefined) span.take(whole);
    for (const [key, member] of members ?? []) {
      begin(key);
      out.text(key);
      out.byte(0x3a);
      out.copy(reader.source, member.start, member.end);
    }
  }
  const write = (index: number, key: string): void => {
    if (!begin(key)) return;
    out.ascii(`"${key}":`);
    writeUnwrapped(context, span.attributes.valueStarts[index]!, span.attributes.valueEnds[index]!);
    span.take(index);
  };
  const model = span.find('requestModel');
  if (model >= 0) write(model, 'model');
  const tool = span.find('genAiToolName');
  if (tool >= 0) write(tool, 'tool_name');
  if (span.find('parameter') >= 0) {
    for (let index = span.find('parameter'); index < span.attributes.count; index++) {
      const { role, key } = span.roles[index]!;
      if (role === 'parameter' && key !== undefined) write(index, key);
    }
  }
  if (seen.size > 0) out.byte(0x7d);
}

function writeOtel(context: SpanContext, hasOwnIds: boolean): void {
  const { out, span } = context;
  const before = out.position;
  out.ascii(',"otel":{');
  const start = out.position;
  const member = (key: string): void => out.ascii(out.position === start ? `"${key}":` : `,"${key}":`);
  if (hasOwnIds) {
    writeHexMember(context, member, 'trace_id', span.traceId);
    writeHexMember(context, member, 'span_id', span.spanId);
    if (span.parentSpanId.end > span.parentSpanId.start) {
      writeHexMember(context, member, 'parent_span_id', span.parentSpanId);
    }
  }
  const kind = spanKinds[span.kind];
  if (kind) {
    member('kind');
    out.ascii(`"${kind}"`);
  }
  if (span.traceState.end > span.traceState.start) {
    member('trace_state');
    context.writeString(span.traceState.start, span.traceState.end);
  }
  for (const [key, count] of [
    ['dropped_attributes_count', span.droppedAttributes],
    ['dropped_events_count', span.droppedEvents],
    ['dropped_links_count', span.droppedLinks],
  ] as const) {
    if (count === 0) continue;
    member(key);
    out.ascii(String(count));
  }
  if (span.links.length > 0) {
    member('links');
    span.links.forEach((link, index) => {
      out.byte(index === 0 ? 0x5b : 0x2c);
      writeLink(context, link);
    });
    out.byte(0x5d);
  }
  if (out.position === start) out.rewind(before);
  else out.byte(0x7d);
}

/** A Link: the ids of the span it points to, in hex, its trace state and attributes. */
function writeLink(context: SpanContext, { start, end }: ByteRange): void {
  const { reader, out } = context;
  out.byte(0x7b);
  const inner = out.position;
  const member = (key: string): void => out.ascii(out.position === inner ? `"${key}":` : `,"${key}":`);
  reader.seek(start, end);
  while (reader.more) {
    const tag = reader.tag();
    if (tag !== 0x0a && tag !== 0x12 && tag !== 0x1a) {
      reader.skip(tag);
      continue;
    }
    const from = reader.delimited();
    const range = { start: from, end: reader.position };
    if (tag === 0x0a) writeHexMember(context, member, 'trace_id', range);
    else if (tag === 0x12) writeHexMember(context, member, 'span_id', range);
    else if (range.end > from) {
      member('trace_state');
      context.writeString(from, range.end);
    }
  }
  const attributes = readAttributes(reader, start, end, 0x22);
  if (attributes.count > 0) {
    member('attributes');
    writeObject(context, attributes);
  }
  out.byte(0x7d);
}

function writeHexMember(
  { out, reader }: SpanContext,
  member: (key: string) => void,
  key: string,
  { start, end }: ByteRange,
): void {
  member(key);
  out.ascii(`"${reader.source.toString('hex', start, end)}"`);
}
