import {
  defaultTextMapGetter,
  ROOT_CONTEXT,
  type SpanContext,
  SpanKind,
  type TextMapPropagator,
  trace,
} from '@opentelemetry/api';
import type { Topic } from '../../../schemas/topics.ts';
import type { LogRecord } from '../../event-log/event-log.ts';
import { type ActiveTracing, activeTracing } from './active-tracing.ts';
import { markFailed } from './publish-span.ts';

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
  const tracing = activeTracing();
  return tracing === undefined ? work() : workTraced(tracing, insert, work);
}

async function workTraced<Result>(
  { tracer, propagator }: ActiveTracing,
  insert: TracedInsert,
  work: () => Promise<Result>,
): Promise<Result> {
  const producers = producersOf(insert.records, propagator);
  const [first] = producers;
  if (first === undefined) return work();
  const span = tracer.startSpan(
    `process ${insert.topic.name}`,
    {
      kind: SpanKind.CONSUMER,
      links: producers.map((context) => ({ context })),
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

/** The distinct contexts of traced publishes. Events of one publish are usually adjacent. */
function producersOf(records: TracedInsert['records'], propagator: TextMapPropagator): SpanContext[] {
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
