import { parseDottedOrder } from '../run-event/dotted-order.ts';
import { parseUuid } from '../run-event/uuid.ts';
import type { RoleName } from './attribute-roles.ts';
import { isNoId, spanUuid, traceUuid } from './ids.ts';
import { flagOf, textOf } from './scalars.ts';
import { overrideKey, type SpanContext } from './span-context.ts';
import { microsOfNanos } from './unix-nano.ts';

/** Where a run belongs: everything that its key and its place in the tree are made of. */
export interface RunPlace {
  readonly runId: string;
  readonly traceId: string;
  readonly parentRunId: string | undefined;
  /** True where the parent is known by its span id only, which is another run id if that span names its own. */
  readonly isParentDerived: boolean;
  /** True where an attribute replaced an id, so that the OTel ids cannot be read off the run. */
  readonly hasOwnIds: boolean;
  readonly startTimeMicros: number;
  readonly traceTimeMicros: number | undefined;
  readonly dottedOrder: string | undefined;
  readonly startedAtMicros: number;
  readonly endedAtMicros: number | undefined;
}

/** Reads a span's place, from the `langsmith.*` attributes where it has them; undefined and a reason where it has none. */
export function readPlace(context: SpanContext): RunPlace | undefined {
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
  const ownRunId = takeUuid(context, 'runId') ?? order?.runId;
  const ownTraceId = takeUuid(context, 'traceId') ?? order?.traceId;
  const ownParentId = takeUuid(context, 'parentId');
  const runId = ownRunId ?? spanId;
  const traceId = ownTraceId ?? otelTraceId;
  if (order !== undefined) {
    if (order.runId !== runId)
      return refuse(context, 'langsmith.span.dotted_order does not end with langsmith.span.id');
    if (order.traceId !== traceId) {
      return refuse(context, 'langsmith.span.dotted_order does not begin with langsmith.trace.id');
    }
    if (ownParentId !== undefined && ownParentId !== order.parentId) {
      return refuse(context, 'langsmith.span.dotted_order does not agree with langsmith.span.parent_id');
    }
  }
  if (runId !== spanId) context.overrides.set(overrideKey(traceId, spanId), runId);
  const isRoot = takesNoParent(context) || (order !== undefined && order.parentId === undefined) || runId === traceId;
  const saidParentId = order?.parentId ?? ownParentId;
  const derived = isRoot || saidParentId !== undefined ? undefined : parentOf(context);
  return {
    runId,
    traceId,
    parentRunId: isRoot ? undefined : (saidParentId ?? derived),
    isParentDerived: derived !== undefined,
    hasOwnIds: runId !== spanId || traceId !== otelTraceId,
    startTimeMicros: order?.runTimeMicros ?? startedAtMicros,
    traceTimeMicros: order?.traceTimeMicros,
    dottedOrder: order?.text,
    startedAtMicros,
    endedAtMicros,
  };
}

function parentOf(context: SpanContext): string | undefined {
  const { reader, span } = context;
  if (isNoId(reader, span.parentSpanId)) return undefined;
  const parentId = spanUuid(reader, span.parentSpanId);
  return parentId ?? refuse(context, 'parent_span_id is not 8 bytes');
}

/** The SDK marks a span whose OTel parent it does not export. */
function takesNoParent(context: SpanContext): boolean {
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
