import { parseDottedOrder } from '../run-event/dotted-order.ts';
import { parseUuid } from '../run-event/uuid.ts';
import { consumeText, consumeValue, readAttributeHead, readFlag, readText, writeValue } from './any-value.ts';
import type { RoleName } from './attribute-roles.ts';
import type { ProtobufReader } from './protobuf.ts';
import type { ByteRange } from './span.ts';
import type { SpanContext } from './span-context.ts';

export function buildOverrideKey(traceId: string, runId: string): string {
  return `${traceId}/${runId}`;
}

/** Ids, times and position in the tree of the run that a span becomes. */
export interface SpanIdentity {
  readonly runId: string;
  readonly traceId: string;
  readonly parentRunId: string | undefined;
  /**
   * True if `parentRunId` was derived from the span id of the parent, which is wrong if the parent span sets its own
   * run id.
   */
  readonly isParentDerived: boolean;
  /** True if an attribute replaced an id; the OTel ids then cannot be derived from the run. */
  readonly hasOwnIds: boolean;
  readonly startTimeMicros: number;
  readonly traceTimeMicros: number | undefined;
  readonly dottedOrder: string | undefined;
  readonly startedAtMicros: number;
  readonly endedAtMicros: number | undefined;
}

/**
 * Reads a span's identity, preferring `langsmith.*` attributes. If the identity is invalid, rejects the span and
 * returns undefined.
 */
export function readIdentity(context: SpanContext): SpanIdentity | undefined {
  const { span, reader } = context;
  const spanId = toSpanUuid(reader, span.spanId);
  const otelTraceId = toTraceUuid(reader, span.traceId);
  if (otelTraceId === undefined) return rejectSpan(context, 'trace_id is not 16 bytes, or all zero');
  if (spanId === undefined) return rejectSpan(context, 'span_id is not 8 bytes, or all zero');
  const startedAtMicros = toMicros(span.startLow, span.startHigh);
  if (span.startLow === 0 && span.startHigh === 0) return rejectSpan(context, 'start_time_unix_nano is missing');
  const hasEnd = span.endLow !== 0 || span.endHigh !== 0;
  const endedAtMicros = hasEnd ? toMicros(span.endLow, span.endHigh) : undefined;
  const order = consumeDottedOrder(context);
  const statedRunId = consumeUuid(context, 'runId') ?? order?.runId;
  const statedTraceId = consumeUuid(context, 'traceId') ?? order?.traceId;
  const statedParentId = consumeUuid(context, 'parentId');
  const runId = statedRunId ?? spanId;
  const traceId = statedTraceId ?? otelTraceId;
  if (order !== undefined) {
    if (order.runId !== runId)
      return rejectSpan(context, 'langsmith.span.dotted_order does not end with langsmith.span.id');
    if (order.traceId !== traceId) {
      return rejectSpan(context, 'langsmith.span.dotted_order does not begin with langsmith.trace.id');
    }
    if (statedParentId !== undefined && statedParentId !== order.parentId) {
      return rejectSpan(context, 'langsmith.span.dotted_order does not agree with langsmith.span.parent_id');
    }
  }
  if (runId !== spanId) context.overrides.set(buildOverrideKey(traceId, spanId), runId);
  const isRoot = isMarkedRoot(context) || (order !== undefined && order.parentId === undefined) || runId === traceId;
  const parentId = order?.parentId ?? statedParentId;
  const derived = isRoot || parentId !== undefined ? undefined : deriveParentId(context);
  return {
    runId,
    traceId,
    parentRunId: isRoot ? undefined : (parentId ?? derived),
    isParentDerived: derived !== undefined,
    hasOwnIds: runId !== spanId || traceId !== otelTraceId,
    startTimeMicros: order?.runTimeMicros ?? startedAtMicros,
    traceTimeMicros: order?.traceTimeMicros,
    dottedOrder: order?.text,
    startedAtMicros,
    endedAtMicros,
  };
}

function deriveParentId(context: SpanContext): string | undefined {
  const { reader, span } = context;
  if (isNoId(reader, span.parentSpanId)) return undefined;
  const parentId = toSpanUuid(reader, span.parentSpanId);
  return parentId ?? rejectSpan(context, 'parent_span_id is not 8 bytes');
}

/**
 * Returns whether the span is marked as root. The SDK marks a span as root if it does not export the span's OTel
 * parent.
 */
function isMarkedRoot(context: SpanContext): boolean {
  const index = context.span.find('isRoot');
  if (index < 0) return false;
  context.span.take(index);
  return readFlag(context, index);
}

function consumeUuid(context: SpanContext, role: RoleName): string | undefined {
  const index = context.span.find(role);
  if (index < 0) return undefined;
  context.span.take(index);
  const id = parseUuid(readText(context, index) ?? '');
  return id ?? rejectSpan(context, `${context.span.attributes.names[index]!.text} is not a UUID`);
}

function consumeDottedOrder(context: SpanContext) {
  const index = context.span.find('dottedOrder');
  if (index < 0) return undefined;
  context.span.take(index);
  const parsed = parseDottedOrder(readText(context, index) ?? '');
  return 'reason' in parsed ? rejectSpan(context, `langsmith.span.dotted_order ${parsed.reason}`) : parsed;
}

function rejectSpan(context: SpanContext, reason: string): undefined {
  context.reject(reason);
}

/**
 * Converts an OTel trace id to the trace id of runs. Ids depend only on the span, so a trace yields the same runs
 * regardless of how it is split over requests: the trace id is the 16 bytes of the OTel trace id as a UUID, and a run
 * id is 8 zero bytes and the 8 bytes of the span id. Source: docs/decisions/0020-otlp-ids.md; stock SDKs rely on the
 * same form.
 */
function toTraceUuid(reader: ProtobufReader, { start, end }: ByteRange): string | undefined {
  if (end - start !== 16) return undefined;
  const hex = reader.source.toString('hex', start, end);
  if (hex === '00000000000000000000000000000000') return undefined;
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** Converts a span id to a run id. Returns undefined if the span id is not 8 bytes long, or consists of zeros only. */
function toSpanUuid(reader: ProtobufReader, { start, end }: ByteRange): string | undefined {
  if (end - start !== 8) return undefined;
  const hex = reader.source.toString('hex', start, end);
  if (hex === '0000000000000000') return undefined;
  return `00000000-0000-0000-${hex.slice(0, 4)}-${hex.slice(4)}`;
}

/** Returns whether the id is absent. Eight zero bytes count as absent, because some SDKs send them for "no parent". */
function isNoId(reader: ProtobufReader, { start, end }: ByteRange): boolean {
  for (let index = start; index < end; index++) if (reader.source[index] !== 0) return false;
  return end === start || end - start === 8;
}

/**
 * Converts nanoseconds, given as two unsigned 32-bit halves, to whole microseconds. The result is exact until the year
 * 2255.
 */
export function toMicros(low: number, high: number): number {
  // 2^32 = 4294967 * 1000 + 296: dividing the halves separately keeps every step below 2^53.
  return high * 4_294_967 + Math.floor((high * 296 + low) / 1000);
}

/** Returns the run's name: from an attribute, otherwise the name of the span. */
export function readRunName(context: SpanContext, isTool: boolean): string {
  const own =
    consumeText(context, 'name') ?? consumeText(context, 'entityName') ?? (isTool && consumeText(context, 'toolName'));
  const { start, end } = context.span.name;
  return own || context.text(start, end) || 'unknown';
}

/** Writes the tags as a JSON array. Accepts a list, or the comma-separated text that the SDK sends. */
export function writeTags(context: SpanContext): Buffer | undefined {
  const { span, out } = context;
  const index = span.find('tags');
  if (index < 0) return undefined;
  const { kind } = readAttributeHead(context, index);
  const start = out.position;
  if (kind === 'array') {
    consumeValue(context, index, writeValue);
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
    consumeValue(context, index, writeValue);
  }
  if (out.position === start) return undefined;
  out.byte(0x7d);
  return out.since(start);
}

/** Reads a UUID from an attribute; an attribute that is not a UUID stays in the metadata. */
export function consumeOptionalUuid(context: SpanContext, role: RoleName): string | undefined {
  const index = context.span.find(role);
  if (index < 0) return undefined;
  const id = parseUuid(readText(context, index) ?? '');
  if (id !== undefined) context.span.take(index);
  return id;
}
