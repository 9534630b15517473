import { decodeJson } from '../../../../pipelines/ingest/otlp/decode-json.ts';
import type { OtlpDraft } from '../../../../pipelines/ingest/otlp/map-span.ts';
import { type OtlpRuns, readOtlp } from '../../../../pipelines/ingest/otlp/read-otlp.ts';
import type { RunValues } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { runToCompletion } from '../run-to-completion.ts';

export const traceHex = '5b8efff798038103d269b633813fc60c';
export const traceId = '5b8efff7-9803-8103-d269-b633813fc60c';
export const spanHex = 'eee19b7ec3c1b174';
export const runId = '00000000-0000-0000-eee1-9b7ec3c1b174';
export const startNanos = 1_764_000_000_123_456_789n;
export const startMicros = 1_764_000_000_123_456;

/** Maximum size of the JSON of all runs of a request, as with the default configuration. */
export const maxBytes = 200 * 1024 ** 2;

type Json = Record<string, unknown>;

/** Returns a valid span in OTLP/JSON, overridden with `fields`. */
export function span(fields: Json = {}): Json {
  return {
    traceId: traceHex,
    spanId: spanHex,
    name: 'step',
    kind: 1,
    startTimeUnixNano: String(startNanos),
    endTimeUnixNano: String(startNanos + 1_500_000_000n),
    ...fields,
  };
}

/**
 * Converts attributes to OTLP/JSON: text to stringValue, integers to intValue, and so on; objects are passed through as
 * AnyValues.
 */
export function attributes(values: Json): Json[] {
  return Object.entries(values).map(([key, value]) => ({ key, value: anyValue(value) }));
}

function anyValue(value: unknown): unknown {
  if (typeof value === 'string') return { stringValue: value };
  if (typeof value === 'boolean') return { boolValue: value };
  if (typeof value === 'number') return Number.isInteger(value) ? { intValue: String(value) } : { doubleValue: value };
  if (Array.isArray(value)) return { arrayValue: { values: value.map(anyValue) } };
  return value;
}

export function request(spans: Json[], resource?: Json, scope?: Json): string {
  return JSON.stringify({ resourceSpans: [{ resource, scopeSpans: [{ scope, spans }] }] });
}

/** Reads a request as OTLP/JSON and as protobuf, and asserts that both results are equal. */
export function readBoth(json: string, maxDepth = 64): OtlpRuns {
  const body = Buffer.from(json);
  const fromJson = runToCompletion(
    readOtlp({ body, contentType: 'application/json', maxDepth, maxParts: 1_000_000, maxBytes }),
  );
  const protobuf = runToCompletion(decodeJson(body, maxDepth, 1_000_000));
  if (protobuf.rejectionReasons.size === 0) {
    const fromProtobuf = runToCompletion(
      readOtlp({
        body: protobuf.body,
        contentType: 'application/x-protobuf',
        maxDepth,
        maxParts: 1_000_000,
        maxBytes,
      }),
    );
    if (JSON.stringify(readable(fromJson)) !== JSON.stringify(readable(fromProtobuf))) {
      throw new Error('JSON and protobuf of one request differ');
    }
  }
  return fromJson;
}

/** Returns the draft of the only span of a request. */
export function readDraft(fields: Json, resource?: Json, scope?: Json): OtlpDraft {
  const { drafts, rejected } = readBoth(request([span(fields)], resource, scope));
  if (drafts.length !== 1) throw new Error(`rejected: ${rejected[0]?.reason}`);
  return drafts[0] as OtlpDraft;
}

/** Returns the draft of a span with these attributes; JSON columns are text. */
export function readDraftTexts(values: Json, fields: Json = {}) {
  return texts(readDraft({ attributes: attributes(values), ...fields }).values);
}

/** Returns the values of a run with JSON columns as text. */
export function texts(values: RunValues): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(values).map(([key, value]) => [
      key,
      value instanceof Uint8Array ? Buffer.from(value).toString('utf8') : value,
    ]),
  );
}

/** Returns the parsed metadata of a run. */
export function metadataOf(values: RunValues): Json {
  return (JSON.parse(Buffer.from(values.extra as Uint8Array).toString('utf8')) as { metadata: Json }).metadata;
}

function readable({ drafts, rejected }: OtlpRuns): unknown {
  return { drafts: drafts.map((draft) => ({ ...draft, values: texts(draft.values) })), rejected };
}
