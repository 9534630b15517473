import type { RunDraft } from '../accept/draft.ts';
import { addUsageDetails, assignUsage, maxUsageBytes, readUsage } from '../accept/usage-of-run.ts';
import { assignValue, type RunType, type RunValues, runTypes } from '../run-event/run-event.ts';
import { consumeText, consumeValue, readFlag, readNumber, readText, readValueHead } from './any-value.ts';
import type { RoleName } from './attribute-roles.ts';
import { writeInputs, writeOutputs, writeParameters } from './inputs-outputs.ts';
import { type SharedMetadata, writeMetadata } from './metadata.ts';
import { writeOtel } from './otel-details.ts';
import { consumeAttachments, type SpanAttachment } from './span-attachments.ts';
import type { SpanContext } from './span-context.ts';
import { findAttribute, findFirstTokenTime, readEvents, type SpanEvent, writeEvents } from './span-events.ts';
import {
  buildOverrideKey,
  consumeOptionalUuid,
  readIdentity,
  readRunName,
  writeSerialized,
  writeTags,
} from './span-fields.ts';

const statusOk = 1;
const statusError = 2;

/**
 * Writes the run's error as a JSON string; returns undefined if the span did not fail.
 *
 * A span failed if its status is ERROR, or if it recorded an exception and its status is not OK. The text is the
 * message of the last exception, otherwise the status message, the exception type or `Error`; the stack trace of the
 * exception follows. Spans of the LangSmith SDKs differ: an SDK sets OK before the outcome is known, and its exception
 * message is the complete error, with the SDK's own stack trace.
 */
function writeFailure(
  context: SpanContext,
  events: readonly SpanEvent[],
  { isSdkScope }: SharedMetadata,
): Buffer | undefined {
  const { span, out } = context;
  const traceable = span.find('traceable');
  const isSdkSpan = isSdkScope || (traceable >= 0 && readFlag(context, traceable));
  const exception = events.findLast(({ name }) => name === 'exception');
  if (span.statusCode !== statusError && (exception === undefined || (span.statusCode === statusOk && !isSdkSpan))) {
    return undefined;
  }
  const start = out.position;
  out.text(buildErrorText(context, exception, isSdkSpan));
  return out.since(start);
}

function buildErrorText(context: SpanContext, exception: SpanEvent | undefined, isSdkSpan: boolean): string {
  const { start, end } = context.span.statusMessage;
  const status = context.text(start, end);
  const type = readTextAttribute(context, exception, 'exception.type');
  const message = readTextAttribute(context, exception, 'exception.message');
  const statedType = context.span.find('errorType');
  const base = message || status || type || (statedType >= 0 && readText(context, statedType)) || 'Error';
  if (isSdkSpan) return base;
  const stack = readTextAttribute(context, exception, 'exception.stacktrace');
  return stack === '' ? base : `${base}\n\n${stack}`;
}

function readTextAttribute(context: SpanContext, event: SpanEvent | undefined, name: string): string {
  const index = event === undefined ? -1 : findAttribute(event.attributes, name);
  if (event === undefined || index < 0) return '';
  const value = readValueHead(context.reader, event.attributes.valueStarts[index]!, event.attributes.valueEnds[index]!);
  return value.kind === 'string' ? context.text(value.start, value.end) : '';
}

const runTypesByName = Object.fromEntries(runTypes.map((type) => [type, type])) as Record<string, RunType>;

/**
 * Attributes that determine the run type, most specific first. Each has a map from its values (in lower case) to run
 * types.
 */
const typeSources: ReadonlyArray<{ role: RoleName; types: ReadonlyMap<string, RunType>; defaultType?: RunType }> = [
  { role: 'runType', types: toMap(runTypesByName) },
  {
    role: 'inferenceKind',
    types: toMap({ ...runTypesByName, agent: 'chain', guardrail: 'chain', evaluator: 'chain', reranker: 'retriever' }),
  },
  { role: 'traceloopKind', types: toMap({ ...runTypesByName, workflow: 'chain', task: 'chain', agent: 'chain' }) },
  {
    role: 'requestType',
    // LiteLLM names the function that was called.
    types: toMap({ embedding: 'embedding', aembedding: 'embedding', rerank: 'retriever', arerank: 'retriever' }),
    defaultType: 'llm',
  },
  {
    role: 'operation',
    types: toMap({
      ...runTypesByName,
      chat: 'llm',
      completion: 'llm',
      text_completion: 'llm',
      generate_content: 'llm',
      embeddings: 'embedding',
      retrieval: 'retriever',
      rerank: 'retriever',
      execute_tool: 'tool',
      invoke_agent: 'chain',
      create_agent: 'chain',
      invoke_workflow: 'chain',
      plan: 'chain',
    }),
  },
  {
    role: 'sdkOperation',
    types: toMap({
      'ai.generatetext.dogenerate': 'llm',
      'ai.streamtext.dostream': 'llm',
      'ai.generateobject.dogenerate': 'llm',
      'ai.streamobject.dostream': 'llm',
      'ai.embed.doembed': 'embedding',
      'ai.embedmany.doembed': 'embedding',
      'ai.rerank.dorerank': 'retriever',
      'ai.toolcall': 'tool',
      'ai.generatetext': 'chain',
      'ai.streamtext': 'chain',
      'ai.generateobject': 'chain',
      'ai.streamobject': 'chain',
    }),
  },
];

/** Attributes whose mere presence determines the run type, if none of the attributes above does. */
const typeHints: ReadonlyArray<readonly [RoleName, RunType]> = [
  ['genAiToolName', 'tool'],
  ['promptVariables', 'prompt'],
  ['documentPart', 'retriever'],
  ['embeddingModelName', 'embedding'],
  ['embeddingPart', 'embedding'],
  ['requestModel', 'llm'],
  ['modelName', 'llm'],
  ['promptPart', 'llm'],
];

/** Returns the run type of a span; `chain` by default. */
function deriveRunType(context: SpanContext): RunType {
  const { span } = context;
  for (const { role, types, defaultType } of typeSources) {
    const index = span.find(role);
    if (index < 0) continue;
    const text = readText(context, index);
    const type = text === undefined ? undefined : (types.get(text.toLowerCase()) ?? defaultType);
    if (type === undefined) continue;
    // Attributes with other roles carry more detail than the run type, so they stay in the metadata.
    if (role === 'runType') span.take(index);
    return type;
  }
  for (const [role, type] of typeHints) if (span.find(role) >= 0) return type;
  return 'chain';
}

function toMap(types: Record<string, RunType>): ReadonlyMap<string, RunType> {
  return new Map(Object.entries(types));
}

/** A span converted to a run: a post with all its values. */
export interface OtlpDraft extends RunDraft {
  readonly kind: 'post';
  /** Index among all spans of the request, from 0. */
  readonly index: number;
  readonly attachments: readonly SpanAttachment[];
}

export type MappedSpan = { readonly draft: OtlpDraft; readonly isParentDerived: boolean } | { readonly reason: string };

/**
 * Maps the span in the context. Every attribute is stored in exactly one place: a field of the run, or the metadata of
 * the run. The JSON values of the draft are views of the context's text.
 *
 * @throws INVALID_PROTOBUF
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
  assignValue(values, 'endedAtMicros', identity.endedAtMicros);
  assignValue(values, 'parentRunId', identity.parentRunId);
  assignValue(values, 'referenceExampleId', consumeOptionalUuid(context, 'exampleId'));
  const attachments = consumeAttachments(context);
  const projectId = consumeOptionalUuid(context, 'projectId');
  const projectName = consumeText(context, 'projectName');
  assignValue(values, 'tags', writeTags(context));
  assignValue(values, 'inputs', writeInputs(context, events));
  assignValue(values, 'outputs', writeOutputs(context, events));
  assignValue(values, 'error', writeFailure(context, events, shared));
  assignValue(values, 'events', writeEvents(context, events));
  assignValue(values, 'serialized', writeSerialized(context));
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
    attachments,
    values,
  };
  return { draft, isParentDerived };
}

/**
 * Reads token counts, costs and the time of the first token. Uses the usage object that was just written, if there is
 * one; otherwise reads them as for other runs. An event of the first token takes precedence over the stated seconds.
 */
function readTokens(context: SpanContext, values: RunValues, events: readonly SpanEvent[]): void {
  if (context.usage === undefined) readUsage(values);
  else if (context.usage.length <= maxUsageBytes) {
    assignUsage(values, JSON.parse(context.usage.toString('utf8')) as Record<string, unknown>);
    // The Python SDK states details in a form that is not JSON, or only in the outputs.
    if (values.usageDetails === undefined) addUsageDetails(values);
  }
  assignValue(values, 'firstTokenTimeMicros', findFirstTokenTime(events));
  const index = context.span.find('firstChunkSeconds');
  const seconds = index < 0 ? undefined : readNumber(context, index);
  if (seconds === undefined || values.firstTokenTimeMicros !== undefined) return;
  values.firstTokenTimeMicros = values.startedAtMicros! + Math.round(seconds * 1_000_000);
}

/** Writes the run's `extra`: `metadata`, and, where present, `invocation_params`, the SDK's `runtime`, and `otel`. */
function writeExtra(context: SpanContext, shared: SharedMetadata, hasOwnIds: boolean): Buffer {
  const { out, span } = context;
  const start = out.position;
  out.byte(0x7b);
  writeParameters(context);
  const runtime = span.find('runtime');
  if (runtime >= 0) {
    out.ascii(out.position === start + 1 ? '"runtime":' : ',"runtime":');
    consumeValue(context, runtime);
  }
  out.ascii(out.position === start + 1 ? '"metadata":' : ',"metadata":');
  // Metadata comes after the other fields, because it contains the attributes that no other field has taken.
  writeMetadata(context, shared);
  writeOtel(context, hasOwnIds);
  out.byte(0x7d);
  return out.since(start);
}

/**
 * Completes the drafts of one request with data of other spans in the request. The time and the project of a trace come
 * from its root span if the request contains it; otherwise the time comes from the earliest span, and the project from
 * the first span that names one. If a parent span sets its own run id, its child runs refer to that id.
 *
 * The drafts may depend on how spans are split over requests. This is harmless, because run ids and trace ids do not
 * change, and the sink keeps the location that the first event of a trace determines.
 */
export function completeDrafts(
  mappedSpans: ReadonlyArray<{ readonly draft: OtlpDraft; readonly isParentDerived: boolean }>,
  overrides: ReadonlyMap<string, string>,
): OtlpDraft[] {
  const traces = new Map<string, TraceOrigin>();
  for (const { draft } of mappedSpans) {
    const origin = traces.get(draft.traceId);
    if (origin === undefined) traces.set(draft.traceId, { lead: draft, project: findProjectDraft(draft) });
    else {
      if (rankDraft(draft) < rankDraft(origin.lead)) origin.lead = draft;
      origin.project ??= findProjectDraft(draft);
    }
  }
  return mappedSpans.map(({ draft, isParentDerived }) => {
    const { lead, project } = traces.get(draft.traceId) as TraceOrigin;
    const parent = isParentDerived && overrides.get(buildOverrideKey(draft.traceId, draft.values.parentRunId ?? ''));
    if (parent) draft.values.parentRunId = parent;
    if (lead === draft && project === undefined) return draft;
    const { projectId, projectName } = findProjectDraft(draft) ?? findProjectDraft(lead) ?? project ?? draft;
    const traceTimeMicros = draft.dottedOrder === undefined ? lead.traceTimeMicros : draft.traceTimeMicros;
    return { ...draft, traceTimeMicros, projectId, projectName };
  });
}

interface TraceOrigin {
  /** The draft that determines the time of the trace. */
  lead: OtlpDraft;
  project: OtlpDraft | undefined;
}

function findProjectDraft(draft: OtlpDraft): OtlpDraft | undefined {
  return draft.projectId === undefined && draft.projectName === undefined ? undefined : draft;
}

/**
 * Returns the rank of a draft. The order, lowest rank first, is: a span with dotted_order (which contains the trace
 * time), the root span, then the earliest span.
 */
function rankDraft(draft: OtlpDraft): number {
  if (draft.dottedOrder !== undefined) return -2;
  return draft.values.parentRunId === undefined ? -1 : draft.startTimeMicros;
}
