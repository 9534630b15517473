import type { ContextManager, Tracer } from '@opentelemetry/api';

/** Where spans go while this process is traced. */
export interface ActiveTracing {
  readonly tracer: Tracer;
  /** Knows the span that the running code belongs to; our own, so that a tracer that is registered globally is left alone. */
  readonly contexts: ContextManager;
}

let active: ActiveTracing | undefined;

/** `undefined` where no exporter is configured, which is all that tracing then costs. */
export function activeTracing(): ActiveTracing | undefined {
  return active;
}

/** For `start-tracing.ts` alone. */
export function setActiveTracing(tracing: ActiveTracing | undefined): void {
  active = tracing;
}
