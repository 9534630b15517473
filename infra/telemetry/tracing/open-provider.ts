import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace-base';
import type { Counter } from 'prom-client';
import type { Config } from '../../config/settings.ts';
import type { Logger } from '../logger.ts';

export interface TracingOptions {
  readonly config: Config;
  /** Value of the attribute `runlake.role`. */
  readonly role: string;
  readonly version: string;
  readonly logger: Logger;
}

const exportIntervalMs = 2_000;
const maxQueuedSpans = 4_096;
const exportTimeoutMs = 5_000;
const maxConcurrentExports = 4;
const warnIntervalMs = 60_000;

/**
 * Creates the SDK's provider, which samples, batches and exports spans to `url`. If its queue is full, spans are
 * dropped. The SDK reads sampler, resource and headers from the standard variables of OpenTelemetry.
 */
export function openProvider(
  url: string,
  options: TracingOptions,
  exportedSpans: Counter<'outcome'>,
): BasicTracerProvider {
  const { role, version } = options;
  const exporter = openExporter(url, options, exportedSpans);
  return new BasicTracerProvider({
    resource: resourceFromAttributes({
      'service.name': 'runlake',
      'service.version': version,
      'runlake.role': role,
    }).merge(detectResources({ detectors: [envDetector] })),
    spanProcessors: [
      new BatchSpanProcessor(exporter, { scheduledDelayMillis: exportIntervalMs, maxQueueSize: maxQueuedSpans }),
    ],
  });
}

/**
 * Exports spans to `url`. A batch that cannot be delivered is dropped and counted, with at most one warning per minute.
 * Traced requests never fail because of the export.
 */
function openExporter(url: string, { logger }: TracingOptions, exportedSpans: Counter<'outcome'>): SpanExporter {
  const exporter = new OTLPTraceExporter({
    url,
    timeoutMillis: exportTimeoutMs,
    concurrencyLimit: maxConcurrentExports,
  });
  let warnedAtMs = Number.NEGATIVE_INFINITY;
  let lost = 0;
  return {
    export(batch, done) {
      exporter.export(batch, (result) => {
        const hasFailed = result.error !== undefined || result.code !== 0;
        exportedSpans.inc({ outcome: hasFailed ? 'failed' : 'exported' }, batch.length);
        if (hasFailed) {
          lost += batch.length;
          if (performance.now() - warnedAtMs >= warnIntervalMs) {
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
