import { ProtobufWriter } from './protobuf-writer.ts';

export interface OtlpResponse {
  readonly contentType: string;
  readonly body: Buffer;
}

/** The encoding that a Content-Type names; undefined if OTLP does not define it. */
export function parseEncoding(contentType: string | undefined): 'protobuf' | 'json' | undefined {
  const type = contentType?.split(';', 1)[0]?.trim().toLowerCase();
  if (type === 'application/x-protobuf' || type === 'application/protobuf') return 'protobuf';
  return type === 'application/json' ? 'json' : undefined;
}

/**
 * Builds the ExportTraceServiceResponse in the encoding of the request, with `partial_success` only if spans were
 * rejected or there is a message. Source: OTLP specification, "Full Success" and "Partial Success".
 */
export function otlpResponse(contentType: string | undefined, rejectedCount: number, message: string): OtlpResponse {
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
export function otlpFailure(contentType: string | undefined, message: string): OtlpResponse {
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
