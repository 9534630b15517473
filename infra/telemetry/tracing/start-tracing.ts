import type { Config } from '../../config/settings.ts';
import { settlesBeforeTimeout } from '../../timeouts/with-timeout.ts';
import type { Logger } from '../logger.ts';
import { setActiveTracing } from './active-tracing.ts';
import { tracesUrl } from './exporter-settings.ts';
import './tracing-metrics.ts';

export interface TracingOptions {
  readonly config: Config;
  /** Value of the attribute `runlake.role`. */
  readonly role: string;
  readonly version: string;
  readonly logger: Logger;
}

export interface Tracing {
  /** Flushes the remaining spans, for at most five seconds, and stops tracing. */
  stop(): Promise<void>;
}

const flushLimitMs = 5_000;

/**
 * Traces requests, publishes and insert batches of this process if an exporter is configured. Otherwise it does nothing
 * and does not load the SDK.
 */
export async function startTracing({ config, role, version, logger }: TracingOptions): Promise<Tracing> {
  const url = tracesUrl(config);
  if (url === undefined) return { stop: async () => undefined };
  const [{ openProvider }, { AsyncLocalStorageContextManager }, { W3CTraceContextPropagator }] = await Promise.all([
    import('./open-provider.ts'),
    import('@opentelemetry/context-async-hooks'),
    import('@opentelemetry/core'),
  ]);
  const provider = openProvider(url, { config, role, version, logger });
  const contexts = new AsyncLocalStorageContextManager().enable();
  const propagator = new W3CTraceContextPropagator();
  setActiveTracing({ tracer: provider.getTracer('runlake', version), contexts, propagator });
  logger.info({ endpoint: new URL(url).host, sampler: config.tracesSampler }, 'tracing started');
  return {
    async stop() {
      setActiveTracing(undefined);
      contexts.disable();
      await settlesBeforeTimeout(provider.shutdown(), flushLimitMs);
    },
  };
}
