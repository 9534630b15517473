/**
 * The header that carries a span's context between processes.
 * Source: W3C Recommendation "Trace Context", 3.2 (traceparent) and 3.3 (tracestate).
 */
import { createTraceState, isSpanContextValid, type SpanContext } from '@opentelemetry/api';

/** Later versions may add fields after the flags; `ff` is not a version. */
const form = /^(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

const maxStateLength = 512;

/**
 * Parses the context of the headers; `undefined` if it is absent or malformed, because the standard requires to ignore those.
 */
export function parseTraceparent(traceparent: unknown, tracestate?: unknown): SpanContext | undefined {
  if (typeof traceparent !== 'string') return undefined;
  const [, version, traceId = '', spanId = '', flags = '', more] = form.exec(traceparent) ?? [];
  if (version === undefined || (version === '00' && more !== undefined)) return undefined;
  const state =
    typeof tracestate === 'string' && tracestate !== '' && tracestate.length <= maxStateLength
      ? { traceState: createTraceState(tracestate) }
      : {};
  const context = { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true, ...state };
  return isSpanContextValid(context) ? context : undefined;
}

export function formatTraceparent({ traceId, spanId, traceFlags }: SpanContext): string {
  return `00-${traceId}-${spanId}-0${traceFlags & 1}`;
}
