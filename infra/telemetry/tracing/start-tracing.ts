import type { Config } from '../../config/settings.ts';
import type { Logger } from '../logger.ts';
import { setActiveTracing } from './active-tracing.ts';
import { tracesUrl } from './exporter-settings.ts';
import './tracing-metrics.ts';

export interface TracingOptions {
  readonly config: Config;
  /** Told as `runlake.role`. */
  readonly role: string;
  readonly version: string;
  readonly logger: Logger;
}

export interface Tracing {
  /** Sends what is left, for five seconds at most, and ends tracing. */
  stop(): Promise<void>;
}

const flushLimitMs = 5_000;

/**
 * Traces requests, publishes and cuts of this process where an exporter is configured, and does nothing where none is: the
 * SDK is not even loaded then.
 */
export async function startTracing({ config, role, version, logger }: TracingOptions): Promise<Tracing> {
  const url = tracesUrl(config);
  if (url === undefined) return { stop: async () => undefined };
  const [{ openProvider }, { AsyncLocalStorageContextManager }] = await Promise.all([
    import('./open-provider.ts'),
    import('@opentelemetry/context-async-hooks'),
  ]);
  const provider = openProvider(url, { config, role, version, logger });
  const contexts = new AsyncLocalStorageContextManager().enable();
  setActiveTracing({ tracer: provider.getTracer('runlake', version), contexts });
  logger.info({ endpoint: new URL(url).host, sampler: config.tracesSampler }, 'requests are traced');
  return {
    async stop() {
      setActiveTracing(undefined);
      contexts.disable();
      let timer: NodeJS.Timeout | undefined;
      const tooLate = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, flushLimitMs);
      });
      await Promise.race([provider.shutdown().catch(() => undefined), tooLate]);
      clearTimeout(timer);
    },
  };
}
