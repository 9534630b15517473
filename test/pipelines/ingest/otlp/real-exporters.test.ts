import { context, type Span, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { OTLPTraceExporter as JsonExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { OTLPTraceExporter as ProtobufExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace-base';
import { beforeAll, expect, test } from 'vitest';
import { type OtlpRuns, readOtlp } from '../../../../pipelines/ingest/otlp/read-otlp.ts';
import { forSuite } from '../../../for-suite.ts';
import { runToCompletion } from '../run-to-completion.ts';
import { startCollector } from './collector.ts';
import { maxBytes, metadataOf, texts } from './requests.ts';

const collector = forSuite(() => startCollector());
let fromProtobuf: OtlpRuns;
let fromJson: OtlpRuns;
let ids: { trace: string; root: string; model: string; tool: string };

const at = (ms: number) => new Date(1_764_000_000_000 + ms);

/** Records one trace: a root, a failing model call, and a tool call inside the model call. */
function record(provider: BasicTracerProvider): typeof ids {
  const tracer = provider.getTracer('demo', '1.2.3');
  const root = tracer.startSpan('agent', {
    startTime: at(0),
    kind: SpanKind.SERVER,
    attributes: { 'langsmith.trace.session_name': 'exporters', 'app.user': 'ada', 'service.name': 'of the span' },
  });
  const below = (span: Span) => trace.setSpan(context.active(), span);
  const model = tracer.startSpan(
    'chat gpt-4o',
    {
      startTime: at(10),
      kind: SpanKind.CLIENT,
      links: [{ context: root.spanContext(), attributes: { why: 'caused' } }],
      attributes: {
        'gen_ai.operation.name': 'chat',
        'gen_ai.request.model': 'gpt-4o',
        'gen_ai.request.temperature': 0.5,
        'gen_ai.input.messages': '[{"role":"user","parts":[{"type":"text","content":"Grüß \\"Gott\\""}]}]',
        'gen_ai.output.messages': '[{"role":"assistant","parts":[]}]',
        'gen_ai.usage.input_tokens': 11,
        'gen_ai.usage.output_tokens': 4,
        'list.of.numbers': [1, 2.5],
      },
    },
    below(root),
  );
  const tool = tracer.startSpan(
    'execute_tool search',
    { startTime: at(20), attributes: { 'gen_ai.tool.name': 'search', 'gen_ai.tool.call.arguments': '{"q":1}' } },
    below(model),
  );
  tool.addEvent('cache miss', { key: 'k' }, at(25));
  tool.end(at(30));
  model.recordException({ name: 'RateLimit', message: 'slow down', stack: 'at x' }, at(40));
  model.setStatus({ code: SpanStatusCode.ERROR, message: 'RateLimit: slow down' });
  model.end(at(50));
  root.end(at(60));
  const uuid = (span: Span) => `00000000-0000-0000-${span.spanContext().spanId.replace(/^(.{4})/, '$1-')}`;
  const traceId = root.spanContext().traceId.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
  return { trace: traceId, root: uuid(root), model: uuid(model), tool: uuid(tool) };
}

beforeAll(async () => {
  const { url } = collector;
  const exporters: SpanExporter[] = [new ProtobufExporter({ url }), new JsonExporter({ url })];
  const provider = new BasicTracerProvider({
    resource: resourceFromAttributes({ 'service.name': 'shop', 'deployment.environment': 'test' }),
    spanProcessors: exporters.map((exporter) => new BatchSpanProcessor(exporter)),
  });
  ids = record(provider);
  await provider.shutdown();
  const read = (type: string) => {
    const sent = collector.requests.find(({ contentType }) => contentType === type);
    if (sent === undefined) throw new Error(`nothing was sent as ${type}`);
    return runToCompletion(readOtlp({ ...sent, maxDepth: 64, maxParts: 1_000_000, maxBytes }));
  };
  fromProtobuf = read('application/x-protobuf');
  fromJson = read('application/json');
});

test('both exporters produce the same runs, none rejected', () => {
  const readable = ({ drafts, rejected }: OtlpRuns) => ({
    rejected,
    drafts: drafts.map((draft) => ({ ...draft, values: texts(draft.values) })),
  });
  expect(readable(fromProtobuf)).toEqual(readable(fromJson));
  expect(fromProtobuf.rejected).toEqual([]);
  expect(fromProtobuf.drafts.map(({ values }) => values.name)).toEqual(['execute_tool search', 'chat gpt-4o', 'agent']);
});

test('ids, tree, times and project of the trace', () => {
  const [tool, model, root] = fromProtobuf.drafts;
  expect(fromProtobuf.drafts.map(({ runId }) => runId)).toEqual([ids.tool, ids.model, ids.root]);
  expect([tool, model, root].map((draft) => draft?.values.parentRunId)).toEqual([ids.model, ids.root, undefined]);
  for (const draft of fromProtobuf.drafts) {
    expect(draft).toMatchObject({ kind: 'post', traceId: ids.trace, projectName: 'exporters', dottedOrder: undefined });
    expect(draft.traceTimeMicros).toBe(at(0).getTime() * 1000);
  }
  expect(tool?.startTimeMicros).toBe(at(20).getTime() * 1000);
  expect(tool?.values.endedAtMicros).toBe(at(30).getTime() * 1000);
});

test('values of the model call', () => {
  const model = fromProtobuf.drafts[1]?.values ?? {};
  const { inputs, outputs, error, extra } = texts(model);
  expect(model).toMatchObject({ runType: 'llm', promptTokens: 11, completionTokens: 4, totalTokens: 15 });
  expect(inputs).toBe('{"messages":[{"role":"user","parts":[{"type":"text","content":"Grüß \\"Gott\\""}]}]}');
  expect(outputs).toBe('{"messages":[{"role":"assistant","parts":[]}]}');
  expect(error).toBe('"slow down\\n\\nat x"');
  expect(JSON.parse(extra as string)).toEqual({
    invocation_params: { model: 'gpt-4o', temperature: 0.5 },
    metadata: {
      ls_model_name: 'gpt-4o',
      usage_metadata: { input_tokens: 11, output_tokens: 4 },
      'gen_ai.operation.name': 'chat',
      'list.of.numbers': [1, 2.5],
      'otel.scope.name': 'demo',
      'otel.scope.version': '1.2.3',
      'service.name': 'shop',
      'deployment.environment': 'test',
    },
    otel: {
      kind: 'client',
      links: [
        {
          trace_id: ids.trace.replaceAll('-', ''),
          span_id: ids.root.slice(19).replace('-', ''),
          attributes: { why: 'caused' },
        },
      ],
    },
  });
});

test('values of the tool call', () => {
  const { inputs, events, outputs, error, runType } = texts(fromProtobuf.drafts[0]?.values ?? {});
  expect([runType, inputs, outputs, error]).toEqual(['tool', '{"q":1}', undefined, undefined]);
  expect(JSON.parse(events as string)).toEqual([
    { name: 'cache miss', time: '2025-11-24T16:00:00.025000Z', kwargs: { key: 'k' } },
  ]);
});

test('a span attribute overrides the resource attribute', () => {
  const metadata = metadataOf(fromProtobuf.drafts[2]?.values ?? {});
  expect(metadata).toMatchObject({
    'service.name': 'of the span',
    'app.user': 'ada',
    'deployment.environment': 'test',
  });
});
