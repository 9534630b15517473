import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import type { SpanExporter } from '@opentelemetry/sdk-trace-base';
import type { Logger } from '../logger.ts';
import { exportedSpans } from './tracing-metrics.ts';

const exportTimeoutMs = 5_000;
const exportsAtOnce = 4;
const warnEveryMs = 60_000;

/**
 * Exports spans to `url`. A batch that cannot be delivered is dropped and counted, with at most one warning a minute,
 * so that traced requests never fail because of it.
 */
export function openExporter(url: string, headers: Record<string, string>, logger: Logger): SpanExporter {
  const exporter = new OTLPTraceExporter({
    url,
    headers,
    timeoutMillis: exportTimeoutMs,
    concurrencyLimit: exportsAtOnce,
  });
  let warnedAtMs = Number.NEGATIVE_INFINITY;
  let lost = 0;
  return {
    export(batch, done) {
      exporter.export(batch, (result) => {
        const failed = result.error !== undefined || result.code !== 0;
        exportedSpans.inc({ outcome: failed ? 'failed' : 'exported' }, batch.length);
        if (failed) {
          lost += batch.length;
          if (performance.now() - warnedAtMs >= warnEveryMs) {
            warnedAtMs = performance.now();
            logger.warn({ err: result.error, spans: lost }, 'cannot export traces');
            lost = 0;
          }
        }
        // Errors are handled above, so the processor always gets success.
        done({ code: 0 });
      });
    },
    forceFlush: () => exporter.forceFlush(),
    shutdown: () => exporter.shutdown(),
  };
}
