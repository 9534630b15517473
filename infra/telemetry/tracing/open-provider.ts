import { resourceFromAttributes } from '@opentelemetry/resources';
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { parseHeaders } from './exporter-settings.ts';
import { openExporter } from './otlp-exporter.ts';
import { samplerOf } from './sampler.ts';
import type { TracingOptions } from './start-tracing.ts';

const exportEveryMs = 2_000;
const maxQueuedSpans = 4_096;

/** Creates the SDK's provider, which samples, batches and exports spans to `url`. If its queue is full, spans are dropped. */
export function openProvider(url: string, { config, role, version, logger }: TracingOptions): BasicTracerProvider {
  const exporter = openExporter(url, parseHeaders(config.otlpHeaders), logger);
  return new BasicTracerProvider({
    resource: resourceFromAttributes({
      'service.name': config.serviceName,
      'service.version': version,
      'runlake.role': role,
    }),
    sampler: samplerOf(config),
    spanProcessors: [
      new BatchSpanProcessor(exporter, { scheduledDelayMillis: exportEveryMs, maxQueueSize: maxQueuedSpans }),
    ],
  });
}
