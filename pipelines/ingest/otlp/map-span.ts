import type { RunDraft } from '../accept/draft.ts';
import { assignUsage, maxUsageBytes, readUsage } from '../accept/usage-of-run.ts';
import type { RunValues } from '../run-event/run-event.ts';
import { writeExtra } from './extra.ts';
import { writeFailure } from './failure.ts';
import { writeInputs, writeOutputs } from './inputs-outputs.ts';
import { readPlace } from './place.ts';
import { runTypeOf } from './run-type.ts';
import { takeText } from './scalars.ts';
import type { SharedMetadata } from './shared-metadata.ts';
import { nameOf, takeOptionalUuid, writeSerialized, writeTags } from './small-fields.ts';
import type { SpanContext } from './span-context.ts';
import { firstTokenTime, readEvents, type SpanEvent, writeEvents } from './span-events.ts';

/** A span as a run: a post of everything that is known of it. */
export interface OtlpDraft extends RunDraft {
  readonly kind: 'post';
  /** The span's place among all spans of the request, from 0. */
  readonly index: number;
}

export type MappedSpan = { readonly draft: OtlpDraft; readonly isParentDerived: boolean } | { readonly reason: string };

/**
 * Maps the span that the context holds. Every attribute ends in exactly one place: a field of the run, or its metadata.
 * The JSON of the draft is views of the context's text. Throws INVALID_PROTOBUF.
 */
export function mapSpan(context: SpanContext, shared: SharedMetadata, index: number): MappedSpan {
  const place = readPlace(context);
  if (place === undefined || context.reason !== undefined) return { reason: context.reason ?? 'no place' };
  const { span } = context;
  for (const role of ['traceable', 'internal'] as const) if (span.find(role) >= 0) span.take(span.find(role));
  const events = readEvents(context);
  const runType = runTypeOf(context);
  const values: RunValues = {
    name: nameOf(context, runType === 'tool'),
    runType,
    startedAtMicros: place.startedAtMicros,
  };
  assign(values, 'endedAtMicros', place.endedAtMicros);
  assign(values, 'parentRunId', place.parentRunId);
  assign(values, 'referenceExampleId', takeOptionalUuid(context, 'exampleId'));
  const projectId = takeOptionalUuid(context, 'projectId');
  const projectName = takeText(context, 'projectName');
  assign(values, 'tags', writeTags(context));
  assign(values, 'inputs', writeInputs(context, events));
  assign(values, 'outputs', writeOutputs(context, events));
  assign(values, 'error', writeFailure(context, events));
  assign(values, 'events', writeEvents(context, events));
  assign(values, 'serialized', writeSerialized(context));
  values.extra = writeExtra(context, shared, place.hasOwnIds);
  if (context.reason !== undefined) return { reason: context.reason };
  if (runType === 'llm' || runType === 'embedding') readTokens(context, values, events);
  const { runId, traceId, startTimeMicros, dottedOrder, isParentDerived } = place;
  const traceTimeMicros = place.traceTimeMicros ?? startTimeMicros;
  const draft: OtlpDraft = {
    kind: 'post',
    index,
    runId,
    traceId,
    startTimeMicros,
    traceTimeMicros,
    dottedOrder,
    projectId,
    projectName,
    values,
  };
  return { draft, isParentDerived };
}

/** Tokens, costs and the time of the first token: from the usage that was just written, else as of any other run. */
function readTokens(context: SpanContext, values: RunValues, events: readonly SpanEvent[]): void {
  if (context.usage === undefined) {
    readUsage(values);
    return;
  }
  if (context.usage.length <= maxUsageBytes) {
    assignUsage(values, JSON.parse(context.usage.toString('utf8')) as Record<string, unknown>);
  }
  assign(values, 'firstTokenTimeMicros', firstTokenTime(events));
}

function assign<K extends keyof RunValues>(values: RunValues, key: K, value: RunValues[K] | undefined): void {
  if (value !== undefined) values[key] = value as RunValues[K];
}
