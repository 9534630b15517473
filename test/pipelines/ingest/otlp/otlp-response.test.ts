import { DiagLogLevel, diag } from '@opentelemetry/api';
import { OTLPTraceExporter as JsonExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { OTLPTraceExporter as ProtobufExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace-base';
import { afterEach, describe, expect, test } from 'vitest';
import { buildOtlpFailure, buildOtlpResponse } from '../../../../pipelines/ingest/otlp/read-otlp.ts';
import { startCollector } from './collector.ts';

test.each([
  ['application/x-protobuf', 'application/x-protobuf', ''],
  ['application/json; charset=utf-8', 'application/json', '{}'],
  [undefined, 'application/x-protobuf', ''],
])('full success for %s omits partial_success', (contentType, answered, body) => {
  const answer = buildOtlpResponse(contentType, 0, '');
  expect([answer.contentType, answer.body.toString()]).toEqual([answered, body]);
});

test('partial success as JSON', () => {
  expect(JSON.parse(buildOtlpResponse('application/json', 2, 'why').body.toString())).toEqual({
    partialSuccess: { rejectedSpans: '2', errorMessage: 'why' },
  });
});

test('a failure is a google.rpc.Status', () => {
  expect(buildOtlpFailure('application/json', 'no').body.toString()).toBe('{"message":"no"}');
  expect(buildOtlpFailure('text/plain', 'no')).toMatchObject({ contentType: 'application/json' });
  const { contentType, body } = buildOtlpFailure('application/x-protobuf', 'no');
  expect([contentType, body.toString('hex')]).toEqual(['application/x-protobuf', '1282808080006e6f']);
});

describe('the exporters parse it', () => {
  afterEach(() => diag.disable());

  const exporters: ReadonlyArray<readonly [string, (url: string) => SpanExporter]> = [
    ['protobuf', (url) => new ProtobufExporter({ url })],
    ['JSON', (url) => new JsonExporter({ url })],
  ];
  test.each(exporters)('%s', async (_name, exporterFor) => {
    const logged: string[] = [];
    const log = (message: string, ...rest: unknown[]) => logged.push([message, ...rest].map(String).join(' '));
    const logger = { error: log, warn: log, info: log, debug: log, verbose: log };
    diag.setLogger(logger, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
    const collector = await startCollector((contentType) => buildOtlpResponse(contentType, 3, 'the reason'));
    try {
      const provider = new BasicTracerProvider({
        spanProcessors: [new BatchSpanProcessor(exporterFor(collector.url))],
      });
      provider.getTracer('t').startSpan('s').end();
      await provider.shutdown();
    } finally {
      await collector.close();
    }
    expect(logged.join('\n')).toContain('the reason');
    expect(logged.join('\n')).toMatch(/"rejectedSpans":"?3/);
  });
});
