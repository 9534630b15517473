import { parseUuid } from '../run-event/uuid.ts';
import { writeValue } from './any-value.ts';
import type { RoleName } from './attribute-roles.ts';
import { consumeText, readAttributeHead, readText } from './scalars.ts';
import type { SpanContext } from './span-context.ts';

/** Returns the run's name: from an attribute, otherwise the name of the span. */
export function readRunName(context: SpanContext, isTool: boolean): string {
  const own =
    consumeText(context, 'name') ?? consumeText(context, 'entityName') ?? (isTool && consumeText(context, 'toolName'));
  const { start, end } = context.span.name;
  return own || context.text(start, end) || 'unknown';
}

/** Writes the tags as a JSON array; accepts a list, or comma-separated text as the SDK sends it. */
export function writeTags(context: SpanContext): Buffer | undefined {
  const { span, out } = context;
  const index = span.find('tags');
  if (index < 0) return undefined;
  const { kind } = readAttributeHead(context, index);
  const start = out.position;
  if (kind === 'array') {
    writeValue(context, span.attributes.valueStarts[index]!, span.attributes.valueEnds[index]!);
    span.take(index);
    return out.since(start);
  }
  const text = readText(context, index);
  if (text === undefined) return undefined;
  span.take(index);
  const tags = text.split(',').flatMap((tag) => tag.trim() || []);
  if (tags.length === 0) return undefined;
  out.json(JSON.stringify(tags));
  return out.since(start);
}

const serializedMembers: ReadonlyArray<readonly [RoleName, string]> = [
  ['serializedName', 'name'],
  ['serializedSignature', 'signature'],
  ['serializedDoc', 'doc'],
];

/** Writes the run's `serialized`: the description of the traced code that the SDK sends. */
export function writeSerialized(context: SpanContext): Buffer | undefined {
  const { span, out } = context;
  const start = out.position;
  for (const [role, key] of serializedMembers) {
    const index = span.find(role);
    if (index < 0) continue;
    out.ascii(out.position === start ? `{"${key}":` : `,"${key}":`);
    writeValue(context, span.attributes.valueStarts[index]!, span.attributes.valueEnds[index]!);
    span.take(index);
  }
  if (out.position === start) return undefined;
  out.byte(0x7d);
  return out.since(start);
}

/** Reads a UUID; an attribute that is not a UUID stays in the metadata. */
export function consumeOptionalUuid(context: SpanContext, role: RoleName): string | undefined {
  const index = context.span.find(role);
  if (index < 0) return undefined;
  const id = parseUuid(readText(context, index) ?? '');
  if (id !== undefined) context.span.take(index);
  return id;
}
