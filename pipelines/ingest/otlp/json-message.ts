import { KeySet } from '../json/key-set.ts';
import { parseKnown } from '../json/parse-known.ts';
import type { JsonRange } from '../json/scan.ts';
import type { JsonObject } from './json-fields.ts';
import { requireFewMembers } from './part-limit.ts';

/** Every field of a Resource, InstrumentationScope, Span, and what they hold, that has a meaning here. */
const names = [
  'traceId',
  'spanId',
  'traceState',
  'parentSpanId',
  'name',
  'version',
  'kind',
  'startTimeUnixNano',
  'endTimeUnixNano',
  'attributes',
  'droppedAttributesCount',
  'events',
  'droppedEventsCount',
  'links',
  'droppedLinksCount',
  'status',
  'flags',
  'timeUnixNano',
  'message',
  'code',
  'key',
  'value',
  'values',
  'stringValue',
  'boolValue',
  'intValue',
  'doubleValue',
  'bytesValue',
  'arrayValue',
  'kvlistValue',
];

/** Each in the two forms that JSON of protobuf may have. */
const known = new KeySet([...new Set(names.flatMap((name) => [name, protoNameOf(name)]))]);

/** Levels of JSON that a level of an attribute's value takes at most, and those of the messages around the values. */
const levelsPerValue = 5;
const levelsAround = 16;

/** The fields of the validated message at `range` that are known. @throws TOO_MANY_PARTS */
export function parseMessage(
  body: Buffer,
  range: JsonRange | undefined,
  valueDepth: number,
  maxParts: number,
): JsonObject {
  if (range === undefined) return {};
  const maxDepth = jsonDepth(valueDepth);
  const onMember = (count: number) => requireFewMembers(count, maxParts);
  return parseKnown(body, range.start, range.end, known, { maxDepth, onMember }) as JsonObject;
}

/** How deep the JSON of a request may nest whose values nest `valueDepth` deep. */
export function jsonDepth(valueDepth: number): number {
  return valueDepth * levelsPerValue + levelsAround;
}

/** `startTimeUnixNano` as `start_time_unix_nano`. */
export function protoNameOf(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
