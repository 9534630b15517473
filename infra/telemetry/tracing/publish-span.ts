import { type Context, defaultTextMapSetter, type Span, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { isRunlakeError } from '../../errors/runlake-error.ts';
import type { LogMessage } from '../../event-log/event-log.ts';
import { type ActiveTracing, activeTracing } from './active-tracing.ts';

type Send = (messages: readonly LogMessage[]) => Promise<void>;

/**
 * Sends `messages` in a new span, and sets its context as their header `traceparent`. If tracing is off, or the current
 * span is not recorded, `send` gets the messages unchanged.
 */
export function tracePublish(topic: string, messages: readonly LogMessage[], send: Send): Promise<void> {
  const tracing = activeTracing();
  if (tracing === undefined) return send(messages);
  const context = tracing.contexts.active();
  return trace.getSpan(context)?.isRecording() ? sendTraced(tracing, context, topic, messages, send) : send(messages);
}

async function sendTraced(
  { tracer, propagator }: ActiveTracing,
  context: Context,
  topic: string,
  messages: readonly LogMessage[],
  send: Send,
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
    await send(carrying(messages, carrier.traceparent));
  } catch (error) {
    markFailed(span, error);
    throw error;
  } finally {
    span.end();
  }
}

function carrying(messages: readonly LogMessage[], traceparent: string): LogMessage[] {
  const only = { traceparent };
  return messages.map((message) => ({
    ...message,
    headers: message.headers === undefined ? only : { ...message.headers, traceparent },
  }));
}

/** Records only the error code, because messages may quote customer data. */
export function markFailed(span: Span, error: unknown): void {
  span.setAttribute('error.type', isRunlakeError(error) ? error.code : 'INTERNAL');
  span.setStatus({ code: SpanStatusCode.ERROR });
}
