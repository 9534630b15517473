import type { RunDraft } from '../accept/draft.ts';
import { assignUsage, maxUsageBytes, readUsage } from '../accept/usage-of-run.ts';
import type { RunValues } from '../run-event/run-event.ts';
import { writeUnwrapped } from './any-value.ts';
import { writeFailure } from './failure.ts';
import { writeInputs, writeOutputs } from './inputs-outputs.ts';
import { writeParameters } from './invocation-parameters.ts';
import { writeMetadata } from './metadata.ts';
import { writeOtel } from './otel-details.ts';
import { deriveRunType } from './run-type.ts';
import { consumeText } from './scalars.ts';
import type { SharedMetadata } from './shared-metadata.ts';
import { consumeOptionalUuid, readRunName, writeSerialized, writeTags } from './small-fields.ts';
import type { SpanContext } from './span-context.ts';
import { firstTokenTime, readEvents, type SpanEvent, writeEvents } from './span-events.ts';
import { readIdentity } from './span-identity.ts';

/** A span converted to a run: a post with all its values. */
export interface OtlpDraft extends RunDraft {
  readonly kind: 'post';
  /** Index among all spans of the request, from 0. */
  readonly index: number;
}

export type MappedSpan = { readonly draft: OtlpDraft; readonly isParentDerived: boolean } | { readonly reason: string };

/**
 * Maps the span in the context. Every attribute is stored in exactly one place: a field of the run, or the metadata of
 * the run. The JSON of the draft consists of views of the context's text. @throws INVALID_PROTOBUF
 */
export function mapSpan(context: SpanContext, shared: SharedMetadata, index: number): MappedSpan {
  const identity = readIdentity(context);
  if (identity === undefined || context.reason !== undefined) return { reason: context.reason ?? 'no identity' };
  const { span } = context;
  for (const role of ['traceable', 'internal'] as const) if (span.find(role) >= 0) span.take(span.find(role));
  const events = readEvents(context);
  const runType = deriveRunType(context);
  const values: RunValues = {
    name: readRunName(context, runType === 'tool'),
    runType,
    startedAtMicros: identity.startedAtMicros,
  };
  assign(values, 'endedAtMicros', identity.endedAtMicros);
  assign(values, 'parentRunId', identity.parentRunId);
  assign(values, 'referenceExampleId', consumeOptionalUuid(context, 'exampleId'));
  const projectId = consumeOptionalUuid(context, 'projectId');
  const projectName = consumeText(context, 'projectName');
  assign(values, 'tags', writeTags(context));
  assign(values, 'inputs', writeInputs(context, events));
  assign(values, 'outputs', writeOutputs(context, events));
  assign(values, 'error', writeFailure(context, events));
  assign(values, 'events', writeEvents(context, events));
  assign(values, 'serialized', writeSerialized(context));
  values.extra = writeExtra(context, shared, identity.hasOwnIds);
  if (context.reason !== undefined) return { reason: context.reason };
  if (runType === 'llm' || runType === 'embedding') readTokens(context, values, events);
  const { runId, traceId, startTimeMicros, dottedOrder, isParentDerived } = identity;
  const traceTimeMicros = identity.traceTimeMicros ?? startTimeMicros;
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

/**
 * Reads tokens, costs and the time of the first token, from the usage that was just written if there is any, otherwise
 * as for other runs.
 */
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

/** Writes the run's `extra`: `metadata`, and if present `invocation_params`, the SDK's `runtime`, and `otel`. */
function writeExtra(context: SpanContext, shared: SharedMetadata, hasOwnIds: boolean): Buffer {
  const { out, span } = context;
  const start = out.position;
  out.byte(0x7b);
  writeParameters(context);
  const runtime = span.find('runtime');
  if (runtime >= 0) {
    out.ascii(out.position === start + 1 ? '"runtime":' : ',"runtime":');
    writeUnwrapped(context, span.attributes.valueStarts[runtime]!, span.attributes.valueEnds[runtime]!);
    span.take(runtime);
  }
  out.ascii(out.position === start + 1 ? '"metadata":' : ',"metadata":');
  // Metadata comes after the other fields, because it contains the attributes that no other field took.
  writeMetadata(context, shared);
  writeOtel(context, hasOwnIds);
  out.byte(0x7d);
  return out.since(start);
}
