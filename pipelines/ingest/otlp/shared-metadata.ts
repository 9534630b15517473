import { readAttributes, writeValue } from './any-value.ts';
import type { ByteRange } from './span.ts';
import type { SpanContext } from './span-context.ts';

/** Metadata that all spans of one scope share, encoded once: attributes of the scope and of the resource. */
export interface SharedMetadata {
  /** Keys in Latin-1, like attribute names, in the order of `members`. */
  readonly keys: readonly string[];
  /** JSON members, each as `"key":value`. */
  readonly members: readonly Buffer[];
  /** All members, joined by commas. */
  readonly whole: Buffer;
  /** Why every span with this metadata is rejected; undefined if the spans are not rejected. */
  readonly reason: string | undefined;
}

/**
 * Reads an InstrumentationScope and a Resource. If both have a key, the value of the scope wins. Source:
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
