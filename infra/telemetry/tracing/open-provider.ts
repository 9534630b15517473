import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BasicTracerProvider,
  BatchSpanProcessor,
  ParentBasedSampler,
  type Sampler,
  type SpanExporter,
  TraceIdRatioBasedSampler,
} from '@opentelemetry/sdk-trace-base';
import type { Counter } from 'prom-client';
import type { Config } from '../../config/settings.ts';
import type { TracingOptions } from './start-tracing.ts';

const exportIntervalMs = 2_000;
const maxQueuedSpans = 4_096;
const exportTimeoutMs = 5_000;
const maxConcurrentExports = 4;
const warnIntervalMs = 60_000;

/**
 * Creates the SDK's provider, which samples, batches and exports spans to `url`. If its queue is full, spans are
 * dropped.
 */
export function openProvider(
  url: string,
  options: TracingOptions,
  exportedSpans: Counter<'outcome'>,
): BasicTracerProvider {
  const { config, role, version } = options;
  const exporter = openExporter(url, options, exportedSpans);
  return new BasicTracerProvider({
    resource: resourceFromAttributes({
      'service.name': config.serviceName,
      'service.version': version,
      'runlake.role': role,
    }),
    sampler: createSampler(config),
    spanProcessors: [
      new BatchSpanProcessor(exporter, { scheduledDelayMillis: exportIntervalMs, maxQueueSize: maxQueuedSpans }),
    ],
  });
}

/**
 * Exports spans to `url`. A batch that cannot be delivered is dropped and counted, with at most one warning a minute,
 * so that traced requests never fail because of it.
 */
function openExporter(
  url: string,
  { config, logger }: TracingOptions,
  exportedSpans: Counter<'outcome'>,
): SpanExporter {
  const exporter = new OTLPTraceExporter({
    url,
    headers: parseHeaders(config.otlpHeaders),
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

/**
 * Creates the sampler for OTEL_TRACES_SAMPLER and its argument (OpenTelemetry specification, SDK environment
 * variables).
 */
function createSampler({ tracesSampler, tracesSamplerArg }: Config): Sampler {
  const name = tracesSampler.replace('parentbased_', '');
  const root =
    name === 'always_on'
      ? new AlwaysOnSampler()
      : name === 'always_off'
        ? new AlwaysOffSampler()
        : new TraceIdRatioBasedSampler(Number(tracesSamplerArg));
  return name === tracesSampler ? root : new ParentBasedSampler({ root });
}

/**
 * Parses `name=value,name=value` with percent-encoded values; a value that is not valid percent-encoding is kept
 * unchanged.
 */
export function parseHeaders(text: string | undefined): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const pair of text?.split(',') ?? []) {
    const [, name, value] = /^\s*([^=]+?)\s*=\s*(.*?)\s*$/s.exec(pair) ?? [];
    if (name !== undefined && value !== undefined) headers[name.toLowerCase()] = decodeValue(value);
  }
  return headers;
}

function decodeValue(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}
