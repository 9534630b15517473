import { consumeValue, readAttributeHead, readAttributes, writeUnwrappedValue, writeValue } from './any-value.ts';
import { findEmbeddedMembers } from './json-text.ts';
import type { ByteRange } from './span.ts';
import type { SpanContext } from './span-context.ts';
import { writeUsage } from './usage-metadata.ts';

/** Metadata that all spans of one scope share, encoded once: attributes of the scope and of the resource. */
export interface SharedMetadata {
  /** Keys in Latin-1, like attribute names, in the order of `members`. */
  readonly keys: readonly string[];
  /** JSON members, each as `"key":value`. */
  readonly members: readonly Buffer[];
  /** All members, joined by commas. */
  readonly whole: Buffer;
  /** Reason why every span with this metadata is rejected; undefined if the spans are not rejected. */
  readonly reason: string | undefined;
  /** Whether an SDK of LangSmith created the spans from its runs. */
  readonly isSdkScope: boolean;
}

const sdkScopeMember = '"otel.scope.name":"langsmith"';

/**
 * Reads an InstrumentationScope and a Resource. If both contain the same key, the value of the scope wins. Source:
 * opentelemetry/proto/common/v1/common.proto, resource/v1/resource.proto.
 */
export function readShared(
  context: SpanContext,
  resource: ByteRange | undefined,
  scope: ByteRange | undefined,
): SharedMetadata {
  context.begin();
  const members = new Map<string, Buffer>();
  if (scope !== undefined) {
    readScopeText(context, scope, 0x0a, '"otel.scope.name":', members);
    readScopeText(context, scope, 0x12, '"otel.scope.version":', members);
    addAttributes(context, scope, 0x1a, members);
  }
  if (resource !== undefined) addAttributes(context, resource, 0x0a, members);
  const fragments = [...members.values()];
  const comma = Buffer.from(',');
  return {
    keys: [...members.keys()],
    members: fragments,
    whole: Buffer.concat(fragments.flatMap((member, index) => (index === 0 ? [member] : [comma, member]))),
    reason: context.reason,
    isSdkScope: members.get('otel.scope.name')?.toString('latin1') === sdkScopeMember,
  };
}

function readScopeText(
  context: SpanContext,
  { start, end }: ByteRange,
  attributeTag: number,
  key: string,
  members: Map<string, Buffer>,
): void {
  const { reader, out } = context;
  reader.seek(start, end);
  while (reader.more) {
    const tag = reader.tag();
    if (tag !== attributeTag) {
      reader.skip(tag);
      continue;
    }
    const from = reader.delimited();
    if (from === reader.position) continue;
    const at = out.position;
    out.ascii(key);
    context.writeString(from, reader.position);
    members.set(key.slice(1, -2), out.since(at));
  }
}

function addAttributes(
  context: SpanContext,
  { start, end }: ByteRange,
  attributeTag: number,
  members: Map<string, Buffer>,
): void {
  const { reader, out } = context;
  const attributes = readAttributes(reader, start, end, attributeTag);
  for (let index = 0; index < attributes.count; index++) {
    const key = attributes.names[index]!.text;
    if (members.has(key)) continue;
    const at = out.position;
    context.writeString(attributes.keyStarts[index]!, attributes.keyEnds[index]!);
    out.byte(0x3a);
    writeValue(context, attributes.valueStarts[index]!, attributes.valueEnds[index]!);
    members.set(key, out.since(at));
  }
}

/**
 * Writes the run's metadata as a JSON object with unique keys, in this order: attributes whose names mark them as
 * metadata, attributes that a convention renames, all attributes that no other field has taken, then scope and
 * resource. If a key is repeated, the first value wins.
 */
export function writeMetadata(context: SpanContext, shared: SharedMetadata): void {
  const { out } = context;
  out.byte(0x7b);
  const start = out.position;
  writeMetadataFields(context, start);
  writeRenamedAttributes(context, start);
  writeModelName(context, start);
  writeUsageMember(context, start);
  writeMetadataObject(context, start);
  writeUnmappedAttributes(context, start);
  writeSharedMetadata(context, start, shared);
  out.byte(0x7d);
}

function writeMetadataFields(context: SpanContext, start: number): void {
  const { span } = context;
  if (span.find('metadataField') < 0) return;
  for (let index = span.find('metadataField'); index < span.attributes.count; index++) {
    const { role, prefixBytes } = span.attributes.names[index]!.role;
    if (role !== 'metadataField') continue;
    span.take(index);
    if (!beginMember(context, start, span.attributes.names[index]!.text.slice(prefixBytes))) continue;
    context.writeString(span.attributes.keyStarts[index]! + (prefixBytes ?? 0), span.attributes.keyEnds[index]!);
    context.out.byte(0x3a);
    // The SDKs encode objects as JSON text.
    writeUnwrappedValue(context, span.attributes.valueStarts[index]!, span.attributes.valueEnds[index]!);
  }
}

function writeRenamedAttributes(context: SpanContext, start: number): void {
  const { span } = context;
  if (span.find('renamedMetadata') < 0) return;
  for (let index = span.find('renamedMetadata'); index < span.attributes.count; index++) {
    const { role, key } = span.attributes.names[index]!.role;
    if (role !== 'renamedMetadata' || key === undefined || !beginMember(context, start, key)) continue;
    context.out.ascii(`"${key}":`);
    consumeValue(context, index, writeValue);
  }
}

/**
 * Writes the model name (`ls_model_name`), by which the price of the model is found: the name from OpenInference,
 * otherwise the model of the response, otherwise the requested model, which the Vercel AI SDK states in an attribute of its
 * own for embeddings.
 */
function writeModelName(context: SpanContext, start: number): void {
  const { span } = context;
  const own = span.find('modelName') >= 0 ? span.find('modelName') : span.find('embeddingModelName');
  const roles = ['responseModel', 'requestModel', 'sdkModel'] as const;
  const index = own >= 0 ? own : span.find(roles.find((role) => span.find(role) >= 0) ?? 'none');
  if (index < 0 || readAttributeHead(context, index).kind !== 'string' || !beginMember(context, start, 'ls_model_name'))
    return;
  context.out.ascii('"ls_model_name":');
  writeValue(context, span.attributes.valueStarts[index]!, span.attributes.valueEnds[index]!);
  if (own >= 0) span.take(own);
}

function writeUsageMember(context: SpanContext, start: number): void {
  const { out, written } = context;
  if (written.has('usage_metadata')) return;
  const before = out.position;
  out.ascii(before === start ? '"usage_metadata":' : ',"usage_metadata":');
  const value = out.position;
  if (!writeUsage(context)) {
    out.rewind(before);
    return;
  }
  written.add('usage_metadata');
  context.usage = out.since(value);
}

/** Writes the members of OpenInference's `metadata`, which is a JSON object, as metadata. */
function writeMetadataObject(context: SpanContext, start: number): void {
  const { span, out, reader } = context;
  const index = span.find('metadataObject');
  if (index < 0) return;
  const value = readAttributeHead(context, index);
  if (value.kind !== 'string') return;
  const members = findEmbeddedMembers(reader.source, value.start, value.end, context.maxJsonDepth);
  if (members === undefined) return;
  span.take(index);
  for (const [key, member] of members) {
    if (!beginMember(context, start, toLatin1(key))) continue;
    out.text(key);
    out.byte(0x3a);
    out.copy(reader.source, member.start, member.end);
  }
}

function writeUnmappedAttributes(context: SpanContext, start: number): void {
  const { span } = context;
  const { attributes } = span;
  for (let index = 0; index < attributes.count; index++) {
    if (span.taken[index] || !beginMember(context, start, attributes.names[index]!.text)) continue;
    context.writeString(attributes.keyStarts[index]!, attributes.keyEnds[index]!);
    context.out.byte(0x3a);
    writeValue(context, attributes.valueStarts[index]!, attributes.valueEnds[index]!);
  }
}

function writeSharedMetadata(context: SpanContext, start: number, shared: SharedMetadata): void {
  const { out, written } = context;
  if (shared.reason !== undefined) context.reject(shared.reason);
  if (shared.keys.length === 0) return;
  if (!shared.keys.some((key) => written.has(key))) {
    if (out.position !== start) out.byte(0x2c);
    out.copy(shared.whole, 0, shared.whole.length);
    return;
  }
  for (const [index, key] of shared.keys.entries()) {
    if (!beginMember(context, start, key)) continue;
    const member = shared.members[index]!;
    out.copy(member, 0, member.length);
  }
}

/** Starts the member `key`, with a comma if needed; returns false if the key already has a value. */
function beginMember({ out, written }: SpanContext, start: number, key: string): boolean {
  if (written.has(key)) return false;
  written.add(key);
  if (out.position !== start) out.byte(0x2c);
  return true;
}

function toLatin1(text: string): string {
  return Buffer.from(text).toString('latin1');
}
