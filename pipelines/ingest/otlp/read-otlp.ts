import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { StepwiseWork } from '../../../infra/timeouts/time-slices.ts';
import { decodeJson } from './decode-json.ts';
import { decodeProtobuf } from './find-spans.ts';
import { JsonText, type TextMemory } from './json-text.ts';
import { completeDrafts, type MappedSpan, mapSpan, type OtlpDraft } from './map-span.ts';
import { readShared } from './metadata.ts';
import { createDetailLimit } from './part-limit.ts';
import { ProtobufReader, ProtobufWriter } from './protobuf.ts';
import { SpanContext } from './span-context.ts';

export interface OtlpResponse {
  readonly contentType: string;
  readonly body: Buffer;
}

/** Returns the encoding that a Content-Type names; undefined if OTLP does not define it. */
function parseEncoding(contentType: string | undefined): 'protobuf' | 'json' | undefined {
  const type = contentType?.split(';', 1)[0]?.trim().toLowerCase();
  if (type === 'application/x-protobuf' || type === 'application/protobuf') return 'protobuf';
  return type === 'application/json' ? 'json' : undefined;
}

/**
 * Builds the ExportTraceServiceResponse in the encoding of the request, with `partial_success` only if spans were
 * rejected or there is a message. Source: OTLP specification, "Full Success" and "Partial Success".
 */
export function buildOtlpResponse(
  contentType: string | undefined,
  rejectedCount: number,
  message: string,
): OtlpResponse {
  const isPartial = rejectedCount > 0 || message !== '';
  if (parseEncoding(contentType) === 'json') {
    const partialSuccess = { rejectedSpans: String(rejectedCount), errorMessage: message };
    return encodeJsonResponse(isPartial ? { partialSuccess } : {});
  }
  const writer = new ProtobufWriter();
  if (isPartial) {
    const mark = writer.begin(0x0a);
    if (rejectedCount > 0) writer.varint(0x08, BigInt(rejectedCount));
    if (message !== '') writer.text(0x12, message);
    writer.end(mark);
  }
  return encodeProtobufResponse(writer);
}

/**
 * Builds the google.rpc.Status of a failed request, in the encoding of the request, or in JSON if that encoding is
 * unknown.
 */
export function buildOtlpFailure(contentType: string | undefined, message: string): OtlpResponse {
  if (parseEncoding(contentType) !== 'protobuf') return encodeJsonResponse({ message });
  const writer = new ProtobufWriter();
  writer.text(0x12, message);
  return encodeProtobufResponse(writer);
}

function encodeJsonResponse(value: object): OtlpResponse {
  return { contentType: 'application/json', body: Buffer.from(JSON.stringify(value)) };
}

function encodeProtobufResponse(writer: ProtobufWriter): OtlpResponse {
  return { contentType: 'application/x-protobuf', body: writer.bytes() };
}

/**
 * An ExportTraceServiceRequest. `maxBytes` and `reserve` apply to the JSON of all runs. It may be much larger than the
 * body, because each run contains the attributes of its resource.
 */
export interface OtlpRequest extends TextMemory {
  readonly body: Buffer;
  readonly contentType: string | undefined;
  /** Maximum nesting of attribute values. */
  readonly maxDepth: number;
  /** Maximum number of spans, of scopes and of resources. The limits on their content are derived from it. */
  readonly maxParts: number;
  /** Called for each span, scope and resource; throws if there is no memory for it. */
  readonly addItem?: (() => void) | undefined;
}

/** A span that was rejected; the other spans of its request are not affected. */
export interface RejectedSpan {
  /** Index among all spans of the request, from 0. */
  readonly index: number;
  readonly reason: string;
}

export interface OtlpRuns {
  readonly drafts: OtlpDraft[];
  readonly rejected: RejectedSpan[];
}

/**
 * Reads an ExportTraceServiceRequest, in protobuf or JSON, into one post per span, in the order of the request.
 * The JSON of the drafts shares memory with the request.
 * @throws UNSUPPORTED_MEDIA_TYPE; INVALID_PROTOBUF, INVALID_JSON or INVALID_UTF8 if the request as a whole cannot be
 * read;
 *   TOO_MANY_PARTS; BODY_TOO_LARGE if the JSON of all runs exceeds `maxBytes`; the errors of `reserve` and `addItem`.
 */
export function* readOtlp({
  body,
  contentType,
  maxDepth,
  maxParts,
  addItem,
  ...memory
}: OtlpRequest): StepwiseWork<OtlpRuns> {
  const encoding = parseEncoding(contentType);
  if (encoding === undefined) {
    const expected = 'application/x-protobuf or application/json';
    throw runlakeError('UNSUPPORTED_MEDIA_TYPE', { type: contentType ?? '', expected });
  }
  const isJson = encoding === 'json';
  const request = isJson ? yield* decodeJson(body, maxDepth, maxParts, addItem) : { body, rejectionReasons: undefined };
  const reader = new ProtobufReader(request.body, createDetailLimit(maxParts));
  const scopes = decodeProtobuf(reader, maxParts, isJson ? undefined : addItem);
  const context = new SpanContext(reader, new JsonText(request.body.length + 4096, memory), maxDepth);
  const mapped: Array<Extract<MappedSpan, { draft: OtlpDraft }>> = [];
  const rejected: RejectedSpan[] = [];
  let index = 0;
  for (const { resource, scope, spans } of scopes) {
    if (spans.length === 0) continue;
    const shared = readShared(context, resource, scope);
    for (const { start, end } of spans) {
      context.begin();
      context.span.read(reader, start, end);
      const reason = request.rejectionReasons?.get(index);
      const result = reason === undefined ? mapSpan(context, shared, index) : { reason };
      if ('draft' in result) mapped.push(result);
      else rejected.push({ index, reason: result.reason });
      index++;
      yield;
    }
  }
  return { drafts: completeDrafts(mapped, context.overrides), rejected };
}
