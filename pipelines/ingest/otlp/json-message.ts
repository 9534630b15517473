import { KeySet } from '../json/key-set.ts';
import { parseKnown } from '../json/parse-known.ts';
import type { JsonRange } from '../json/scan.ts';
import type { JsonObject } from './json-fields.ts';
import { enforceMemberLimit } from './part-limit.ts';

/** Known fields of Resource, InstrumentationScope and Span, and of the messages in them. */
const fieldNames = [
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

/** Each name in both forms that the JSON encoding of protobuf allows. */
const knownKeys = new KeySet([...new Set(fieldNames.flatMap((name) => [name, toProtoName(name)]))]);

/** Maximum JSON levels per level of an attribute value, and levels of the messages around the values. */
const levelsPerValue = 5;
const envelopeLevels = 16;

/** Parses the known fields of the validated message at `range`. @throws TOO_MANY_PARTS */
export function parseMessage(
  body: Buffer,
  range: JsonRange | undefined,
  valueDepth: number,
  maxParts: number,
): JsonObject {
  if (range === undefined) return {};
  const maxDepth = computeJsonDepth(valueDepth);
  const onMember = (count: number) => enforceMemberLimit(count, maxParts);
  return parseKnown(body, range.start, range.end, knownKeys, { maxDepth, onMember }) as JsonObject;
}

/** Maximum nesting of the JSON of a request whose attribute values nest `valueDepth` deep. */
export function computeJsonDepth(valueDepth: number): number {
  return valueDepth * levelsPerValue + envelopeLevels;
}

/** The name as in the .proto file: `startTimeUnixNano` becomes `start_time_unix_nano`. */
export function toProtoName(name: string): string {
  return name.replace(/[A-Z]/g, (character) => `_${character.toLowerCase()}`);
}
