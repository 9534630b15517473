/**
 * The header that carries a span's context over a process border.
 * Source: W3C Recommendation "Trace Context", 3.2 (traceparent) and 3.3 (tracestate).
 */
import { createTraceState, isSpanContextValid, type SpanContext } from '@opentelemetry/api';

/** Later versions may add fields behind the flags; `ff` is no version. */
const form = /^(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

const longestStateBytes = 512;

/** The context that the headers name; `undefined` where they name none or it is malformed, which the standard says to ignore. */
export function parseTraceparent(traceparent: unknown, tracestate?: unknown): SpanContext | undefined {
  if (typeof traceparent !== 'string') return undefined;
  const [, version, traceId = '', spanId = '', flags = '', more] = form.exec(traceparent) ?? [];
  if (version === undefined || (version === '00' && more !== undefined)) return undefined;
  const state =
    typeof tracestate === 'string' && tracestate !== '' && tracestate.length <= longestStateBytes
      ? { traceState: createTraceState(tracestate) }
      : {};
  const context = { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true, ...state };
  return isSpanContextValid(context) ? context : undefined;
}

export function formatTraceparent({ traceId, spanId, traceFlags }: SpanContext): string {
  return `00-${traceId}-${spanId}-0${traceFlags & 1}`;
}
