import { context, trace } from '@opentelemetry/api';
import { OTLPTraceExporter as JsonExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { OTLPTraceExporter as ProtobufExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { expect, test } from 'vitest';
import { forSuite } from '../for-suite.ts';
import { startRunlake } from '../runlake-process.ts';

const runlake = forSuite(() => startRunlake());

test.each([
  ['protobuf', ProtobufExporter, 'gzip'],
  ['JSON', JsonExporter, 'none'],
] as const)(
  'stores the spans that the stock exporter sends as %s as runs of one trace',
  async (encoding, Exporter, compression) => {
    const project = `otel ${encoding}`;
    const exporter = new Exporter({
      url: `${runlake.url}/otel/v1/traces`,
      headers: { 'x-api-key': runlake.apiKey, 'Langsmith-Project': project },
      compression: compression as never,
    });
    const provider = new BasicTracerProvider({ spanProcessors: [new BatchSpanProcessor(exporter)] });
    const tracer = provider.getTracer('test');
    const root = tracer.startSpan('agent', { attributes: { 'langsmith.span.kind': 'chain' } });
    const below = trace.setSpan(context.active(), root);
    const model = tracer.startSpan(
      'chat',
      {
        attributes: {
          'gen_ai.operation.name': 'chat',
          'gen_ai.usage.input_tokens': 7,
          'gen_ai.usage.output_tokens': 3,
        },
      },
      below,
    );
    model.end();
    root.end();
    await provider.forceFlush();
    await provider.shutdown();

    const headers = { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' };
    const [session] = (await (
      await fetch(`${runlake.url}/sessions?name=${encodeURIComponent(project)}`, { headers })
    ).json()) as { id: string }[];
    const answer = await fetch(`${runlake.url}/runs/query`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ session: [session?.id], order: 'asc' }),
    });
    const { runs } = (await answer.json()) as { runs: Record<string, unknown>[] };
    // Both spans start within one microsecond, so their order is arbitrary.
    runs.sort((a, b) => String(a.name).localeCompare(String(b.name)));
    expect(runs).toMatchObject([
      { name: 'agent', run_type: 'chain', parent_run_id: null, status: 'success' },
      { name: 'chat', run_type: 'llm', parent_run_id: runs[0]?.id, total_tokens: 10 },
    ]);
    expect(new Set(runs.map((run) => run.trace_id)).size).toBe(1);
    const roots = await fetch(`${runlake.url}/runs/query`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ session: [session?.id], is_root: true }),
    });
    expect(await roots.json()).toMatchObject({ runs: [{ name: 'agent' }] });
  },
);
