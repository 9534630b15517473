import { decodeJson } from '../../pipelines/ingest/otlp/decode-json.ts';
import { runToCompletion } from '../../test/pipelines/ingest/run-to-completion.ts';
import type { LoadRun } from './bodies.ts';

export const otlpType = 'application/x-protobuf';

/** The same runs as spans of one ExportTraceServiceRequest in protobuf, with 1 KB of attributes each. */
export function otlpBody(runs: readonly LoadRun[]): Buffer {
  const spans = runs.map((run) => ({
    traceId: run.traceId.replaceAll('-', ''),
    spanId: run.id.slice(-17).replace('-', ''),
    ...(run.id !== run.traceId && { parentSpanId: run.traceId.slice(-17).replace('-', '') }),
    name: 'step of the agent',
    kind: 1,
    startTimeUnixNano: `${run.startTimeMicros}000`,
    endTimeUnixNano: `${run.startTimeMicros + 250_000}000`,
    attributes: [
      text('langsmith.span.kind', 'tool'),
      text('langsmith.trace.session_name', 'bench'),
      text('langsmith.metadata.revision', 'a1b2c3d'),
      text('input.value', run.inputs),
      text('output.value', run.outputs),
    ],
  }));
  const request = {
    resourceSpans: [{ resource: { attributes: [text('service.name', 'bench')] }, scopeSpans: [{ spans }] }],
  };
  return runToCompletion(decodeJson(Buffer.from(JSON.stringify(request)), 64, 1_000_000)).body;
}

function text(key: string, stringValue: string) {
  return { key, value: { stringValue } };
}
