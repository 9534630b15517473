import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { StepwiseWork } from '../in-slices.ts';
import { completeDrafts } from './complete-drafts.ts';
import { decodeJson } from './decode-json.ts';
import { decodeProtobuf } from './decode-protobuf.ts';
import { JsonText } from './json-text.ts';
import { type MappedSpan, mapSpan, type OtlpDraft } from './map-span.ts';
import { parseEncoding } from './otlp-response.ts';
import { createDetailLimit } from './part-limit.ts';
import { ProtobufReader } from './protobuf-reader.ts';
import { readShared } from './shared-metadata.ts';
import { SpanContext } from './span-context.ts';

export interface OtlpRequest {
  readonly body: Buffer;
  readonly contentType: string | undefined;
  /** Maximum nesting of attribute values. */
  readonly maxDepth: number;
  /** Maximum number of spans, of scopes and of resources; the limits on their content derive from it. */
  readonly maxParts: number;
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
 *   TOO_MANY_PARTS.
 */
export function* readOtlp({ body, contentType, maxDepth, maxParts }: OtlpRequest): StepwiseWork<OtlpRuns> {
  const encoding = parseEncoding(contentType);
  if (encoding === undefined) {
    const expected = 'application/x-protobuf or application/json';
    throw runlakeError('UNSUPPORTED_MEDIA_TYPE', { type: contentType ?? '', expected });
  }
  const request =
    encoding === 'json' ? yield* decodeJson(body, maxDepth, maxParts) : { body, rejectionReasons: undefined };
  const reader = new ProtobufReader(request.body, createDetailLimit(maxParts));
  const scopes = decodeProtobuf(reader, maxParts);
  const context = new SpanContext(reader, new JsonText(request.body.length + 4096), maxDepth);
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
