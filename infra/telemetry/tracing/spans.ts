/**
 * Creates the spans of Runlake's own work: requests, publishes and insert batches. If tracing is off, these functions
 * create no spans.
 */
import {
  type Context,
  defaultTextMapGetter,
  defaultTextMapSetter,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  type TextMapPropagator,
  trace,
} from '@opentelemetry/api';
import type { Topic } from '../../../schemas/topics.ts';
import { isRunlakeError } from '../../errors/runlake-error.ts';
import type { LogMessage, LogRecord } from '../../event-log/event-log.ts';
import { type ActiveTracing, getActiveTracing } from './start-tracing.ts';

export interface TracedRequest {
  readonly method: string;
  /** Route pattern with parameter names, never their values. */
  readonly route: string;
  readonly operation: string;
  readonly headers: Readonly<Record<string, unknown>>;
}

/** The span of a request, from its arrival to the end of the response. */
export class RequestSpan {
  readonly #tracing: ActiveTracing;
  readonly #span: Span;
  readonly #context: Context;

  /** Only {@link startRequestSpan} calls this. */
  constructor(tracing: ActiveTracing, span: Span, context: Context) {
    this.#tracing = tracing;
    this.#span = span;
    this.#context = context;
  }

  get traceId(): string {
    return this.#span.spanContext().traceId;
  }

  /** Runs `work`. Spans that `work` starts are children of this span. */
  run<Result>(work: () => Result): Result {
    return this.#tracing.contextManager.with(this.#context, work);
  }

  /** Records the code of the error that the response contains. */
  failed(code: string): void {
    this.#span.setAttribute('error.type', code);
  }

  /** Ends the span. `status` is `aborted` if the client disconnected before the response was complete. */
  end(status: number | 'aborted', workspaceId: string | undefined): void {
    if (workspaceId !== undefined) this.#span.setAttribute('runlake.workspace.id', workspaceId);
    if (status === 'aborted') this.#span.setAttribute('error.type', 'aborted');
    else this.#span.setAttribute('http.response.status_code', status);
    if (status === 'aborted' || status >= 500) this.#span.setStatus({ code: SpanStatusCode.ERROR });
    this.#span.end();
  }
}

/** Continues the trace in the request's `traceparent`, or starts a new one. Returns `undefined` if tracing is off. */
export function startRequestSpan({ method, route, operation, headers }: TracedRequest): RequestSpan | undefined {
  const tracing = getActiveTracing();
  if (tracing === undefined) return undefined;
  const parent = tracing.propagator.extract(ROOT_CONTEXT, headers, defaultTextMapGetter);
  const attributes = { 'http.request.method': method, 'http.route': route, 'runlake.operation': operation };
  const span = tracing.tracer.startSpan(`${method} ${route}`, { kind: SpanKind.SERVER, attributes }, parent);
  return new RequestSpan(tracing, span, trace.setSpan(parent, span));
}

type SendMessages = (messages: readonly LogMessage[]) => Promise<void>;

/**
 * Sends `messages` in a new span, and sets their header `traceparent` to the context of that span. If tracing is off,
 * or the current span is not recorded, `send` gets the messages unchanged.
 */
export function tracePublish(topic: string, messages: readonly LogMessage[], send: SendMessages): Promise<void> {
  const tracing = getActiveTracing();
  if (tracing === undefined) return send(messages);
  const context = tracing.contextManager.active();
  return trace.getSpan(context)?.isRecording() ? sendTraced(tracing, context, topic, messages, send) : send(messages);
}

async function sendTraced(
  { tracer, propagator }: ActiveTracing,
  context: Context,
  topic: string,
  messages: readonly LogMessage[],
  send: SendMessages,
): Promise<void> {
  const attributes = {
    'messaging.operation.type': 'send',
    'messaging.destination.name': topic,
    'messaging.batch.message_count': messages.length,
  };
  const span = tracer.startSpan(`send ${topic}`, { kind: SpanKind.PRODUCER, attributes }, context);
  const carrier = { traceparent: '' };
  propagator.inject(trace.setSpan(context, span), carrier, defaultTextMapSetter);
  try {
    await send(addTraceparent(messages, carrier.traceparent));
  } catch (error) {
    markFailed(span, error);
    throw error;
  } finally {
    span.end();
  }
}

function addTraceparent(messages: readonly LogMessage[], traceparent: string): LogMessage[] {
  const only = { traceparent };
  return messages.map((message) => ({
    ...message,
    headers: message.headers === undefined ? only : { ...message.headers, traceparent },
  }));
}

export interface TracedInsert {
  readonly topic: Topic;
  readonly partition: number;
  readonly records: readonly { readonly record: LogRecord }[];
}

const maxLinks = 32;

/**
 * Runs `work`, which stores an insert batch, in a span. The span belongs to the trace of the first traced publish in
 * the batch, and links to up to 32 traced publishes. A batch without traced publishes is not traced.
 */
export function traceInsert<Result>(insert: TracedInsert, work: () => Promise<Result>): Promise<Result> {
  const tracing = getActiveTracing();
  return tracing === undefined ? work() : runInSpan(tracing, insert, work);
}

async function runInSpan<Result>(
  { tracer, propagator }: ActiveTracing,
  insert: TracedInsert,
  work: () => Promise<Result>,
): Promise<Result> {
  const producerContexts = listPublishContexts(insert.records, propagator);
  const [first] = producerContexts;
  if (first === undefined) return work();
  const span = tracer.startSpan(
    `process ${insert.topic.name}`,
    {
      kind: SpanKind.CONSUMER,
      links: producerContexts.map((context) => ({ context })),
      attributes: {
        'messaging.operation.type': 'process',
        'messaging.destination.name': insert.topic.name,
        'messaging.destination.partition.id': String(insert.partition),
        'messaging.batch.message_count': insert.records.length,
        'runlake.table': insert.topic.table,
        'runlake.first_offset': insert.records[0]?.record.offset ?? 0,
        'runlake.last_offset': insert.records.at(-1)?.record.offset ?? 0,
      },
    },
    trace.setSpanContext(ROOT_CONTEXT, first),
  );
  try {
    return await work();
  } catch (error) {
    markFailed(span, error);
    throw error;
  } finally {
    span.end();
  }
}

/** Returns the distinct contexts of traced publishes. Events of one publish are usually adjacent. */
function listPublishContexts(records: TracedInsert['records'], propagator: TextMapPropagator): SpanContext[] {
  const producers = new Map<string, SpanContext>();
  let before: string | undefined;
  for (const { record } of records) {
    const { traceparent } = record.headers;
    if (traceparent === undefined || traceparent === before || producers.has(traceparent)) continue;
    before = traceparent;
    const context = trace.getSpanContext(propagator.extract(ROOT_CONTEXT, { traceparent }, defaultTextMapGetter));
    if (context !== undefined) producers.set(traceparent, context);
    if (producers.size === maxLinks) break;
  }
  return [...producers.values()];
}

/** Marks a span as failed. Records only the error code, because messages may quote customer data. */
function markFailed(span: Span, error: unknown): void {
  span.setAttribute('error.type', isRunlakeError(error) ? error.code : 'INTERNAL');
  span.setStatus({ code: SpanStatusCode.ERROR });
}
