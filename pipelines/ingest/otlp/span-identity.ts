import { parseDottedOrder } from '../run-event/dotted-order.ts';
import { parseUuid } from '../run-event/uuid.ts';
import type { RoleName } from './attribute-roles.ts';
import { isNoId, spanUuid, traceUuid } from './ids.ts';
import { flagOf, textOf } from './scalars.ts';
import { overrideKey, type SpanContext } from './span-context.ts';
import { microsOfNanos } from './unix-nano.ts';

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
  /** True if an attribute replaced an id, so that the OTel ids cannot be derived from the run. */
  readonly hasOwnIds: boolean;
  readonly startTimeMicros: number;
  readonly traceTimeMicros: number | undefined;
  readonly dottedOrder: string | undefined;
  readonly startedAtMicros: number;
  readonly endedAtMicros: number | undefined;
}

/** Reads a span's identity, preferring `langsmith.*` attributes. Rejects the span and returns undefined if it is invalid. */
export function readIdentity(context: SpanContext): SpanIdentity | undefined {
  const { span, reader } = context;
  const spanId = spanUuid(reader, span.spanId);
  const otelTraceId = traceUuid(reader, span.traceId);
  if (otelTraceId === undefined) return refuse(context, 'trace_id is not 16 bytes, or all zero');
  if (spanId === undefined) return refuse(context, 'span_id is not 8 bytes, or all zero');
  const startedAtMicros = microsOfNanos(span.startLow, span.startHigh);
  if (span.startLow === 0 && span.startHigh === 0) return refuse(context, 'start_time_unix_nano is missing');
  const hasEnd = span.endLow !== 0 || span.endHigh !== 0;
  if (hasEnd && (span.endHigh < span.startHigh || (span.endHigh === span.startHigh && span.endLow < span.startLow))) {
    return refuse(context, 'end_time_unix_nano is before start_time_unix_nano');
  }
  const endedAtMicros = hasEnd ? microsOfNanos(span.endLow, span.endHigh) : undefined;
  const order = takeDottedOrder(context);
  const statedRunId = takeUuid(context, 'runId') ?? order?.runId;
  const statedTraceId = takeUuid(context, 'traceId') ?? order?.traceId;
  const statedParentId = takeUuid(context, 'parentId');
  const runId = statedRunId ?? spanId;
  const traceId = statedTraceId ?? otelTraceId;
  if (order !== undefined) {
    if (order.runId !== runId)
      return refuse(context, 'langsmith.span.dotted_order does not end with langsmith.span.id');
    if (order.traceId !== traceId) {
      return refuse(context, 'langsmith.span.dotted_order does not begin with langsmith.trace.id');
    }
    if (statedParentId !== undefined && statedParentId !== order.parentId) {
      return refuse(context, 'langsmith.span.dotted_order does not agree with langsmith.span.parent_id');
    }
  }
  if (runId !== spanId) context.overrides.set(overrideKey(traceId, spanId), runId);
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
  const parentId = spanUuid(reader, span.parentSpanId);
  return parentId ?? refuse(context, 'parent_span_id is not 8 bytes');
}

/** The SDK marks a span as root if it does not export the span's OTel parent. */
function isMarkedRoot(context: SpanContext): boolean {
  const index = context.span.find('isRoot');
  if (index < 0) return false;
  context.span.take(index);
  return flagOf(context, index);
}

function takeUuid(context: SpanContext, role: RoleName): string | undefined {
  const index = context.span.find(role);
  if (index < 0) return undefined;
  context.span.take(index);
  const id = parseUuid(textOf(context, index) ?? '');
  return id ?? refuse(context, `${context.span.attributes.names[index]!.text} is not a UUID`);
}

function takeDottedOrder(context: SpanContext) {
  const index = context.span.find('dottedOrder');
  if (index < 0) return undefined;
  context.span.take(index);
  const parsed = parseDottedOrder(textOf(context, index) ?? '');
  return 'reason' in parsed ? refuse(context, `langsmith.span.dotted_order ${parsed.reason}`) : parsed;
}

function refuse(context: SpanContext, reason: string): undefined {
  context.reject(reason);
}
