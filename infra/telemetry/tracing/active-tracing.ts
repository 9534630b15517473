import type { ContextManager, TextMapPropagator, Tracer } from '@opentelemetry/api';

/** Tracer and context manager while tracing is on. */
export interface ActiveTracing {
  readonly tracer: Tracer;
  /** Tracks the current span. Runlake uses its own context manager, so that a globally registered tracer is not affected. */
  readonly contexts: ContextManager;
  /** Reads and writes `traceparent` (W3C Trace Context). Runlake does not register it globally, for the same reason. */
  readonly propagator: TextMapPropagator;
}

let active: ActiveTracing | undefined;

/** Returns `undefined` if no exporter is configured; this check is then the only cost of tracing. */
export function activeTracing(): ActiveTracing | undefined {
  return active;
}

/** Only `start-tracing.ts` calls this. */
export function setActiveTracing(tracing: ActiveTracing | undefined): void {
  active = tracing;
}
