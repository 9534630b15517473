import type { ContextManager, TextMapPropagator, Tracer } from '@opentelemetry/api';
import type { Config } from '../../config/settings.ts';
import { settlesBeforeTimeout } from '../../timeouts/with-timeout.ts';
import { counter } from '../metrics.ts';
import type { TracingOptions } from './open-provider.ts';

export interface Tracing {
  /** Flushes the remaining spans, for at most five seconds, and stops tracing. */
  stop(): Promise<void>;
}

/** Tracer and context manager while tracing is on. */
export interface ActiveTracing {
  readonly tracer: Tracer;
  /** Tracks the current span. Runlake uses its own context manager, so that a globally registered tracer is not affected. */
  readonly contextManager: ContextManager;
  /**
   * Reads and writes `traceparent` (W3C Trace Context). Runlake does not register it globally, so that a globally
   * registered tracer is not affected.
   */
  readonly propagator: TextMapPropagator;
}

let currentTracing: ActiveTracing | undefined;

/** Returns the active tracing; `undefined` if no exporter is configured. Tracing then costs nothing but this check. */
export function getActiveTracing(): ActiveTracing | undefined {
  return currentTracing;
}

const flushTimeoutMs = 5_000;

const exportedSpans = counter(
  'runlake_tracing_spans_total',
  'Spans of Runlake itself that were passed to the exporter, by outcome (exported, failed).',
  ['outcome'],
);

/**
 * Traces requests, publishes and insert batches of this process if an exporter is configured. Otherwise does nothing,
 * and does not load the SDK.
 */
export async function startTracing(options: TracingOptions): Promise<Tracing> {
  const { config, version, logger } = options;
  const url = buildTracesUrl(config);
  if (url === undefined) return { stop: async () => undefined };
  const [{ openProvider }, { AsyncLocalStorageContextManager }, { W3CTraceContextPropagator }] = await Promise.all([
    import('./open-provider.ts'),
    import('@opentelemetry/context-async-hooks'),
    import('@opentelemetry/core'),
  ]);
  const provider = openProvider(url, options, exportedSpans);
  const contextManager = new AsyncLocalStorageContextManager().enable();
  const propagator = new W3CTraceContextPropagator();
  currentTracing = { tracer: provider.getTracer('runlake', version), contextManager, propagator };
  logger.info({ endpoint: new URL(url).host }, 'tracing started');
  return {
    async stop() {
      currentTracing = undefined;
      contextManager.disable();
      await settlesBeforeTimeout(provider.shutdown(), flushTimeoutMs);
    },
  };
}

/** Returns the URL for trace exports; `undefined` if none is configured. */
export function buildTracesUrl({ otlpTracesEndpoint, otlpEndpoint }: Config): string | undefined {
  if (otlpTracesEndpoint !== undefined) return otlpTracesEndpoint;
  return otlpEndpoint === undefined ? undefined : `${otlpEndpoint.replace(/\/+$/, '')}/v1/traces`;
}
