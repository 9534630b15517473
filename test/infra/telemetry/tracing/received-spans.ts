import { decodeProtobuf } from '../../../../pipelines/ingest/otlp/find-spans.ts';
import { createRequestPartLimit } from '../../../../pipelines/ingest/otlp/part-limit.ts';
import { ProtobufReader } from '../../../../pipelines/ingest/otlp/protobuf.ts';
import { type Collector, startCollector } from '../../../pipelines/ingest/otlp/collector.ts';

export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string;
  readonly name: string;
  /** Kind of the span: 2 server, 4 producer, 5 consumer. */
  readonly kind: number;
  readonly attributes: Readonly<Record<string, string | number | undefined>>;
  readonly links: readonly { readonly traceId: string; readonly spanId: string }[];
  /** Status code; 2 is an error. */
  readonly status: number;
  readonly resource: Readonly<Record<string, string | number | undefined>>;
}

export interface Receiver {
  readonly collector: Collector;
  spans(): ReceivedSpan[];
  close(): Promise<void>;
}

/** Starts an OTLP endpoint that decodes received spans. */
export async function startReceiver(): Promise<Receiver> {
  const collector = await startCollector();
  return {
    collector,
    spans: () => collector.requests.flatMap(({ body }) => decodeSpans(body)),
    close: () => collector.close(),
  };
}

interface Field {
  readonly number: number;
  /** Value of a varint field. */
  readonly value: number;
  readonly bytes: Buffer;
}

/** Decodes the spans of a request. Field numbers: opentelemetry/proto/trace/v1/trace.proto. */
function decodeSpans(body: Buffer): ReceivedSpan[] {
  const reader = new ProtobufReader(body, createRequestPartLimit(1_000_000));
  return decodeProtobuf(reader, 100_000).flatMap(({ resource, spans }) => {
    const resourceAttributes = resource ? decodeAttributes(body.subarray(resource.start, resource.end), 1) : {};
    return spans.map(({ start, end }) => {
      const bytes = body.subarray(start, end);
      const fields = fieldsOf(bytes);
      const hex = (number: number) => first(fields, number)?.bytes.toString('hex') ?? '';
      return {
        traceId: hex(1),
        spanId: hex(2),
        parentSpanId: hex(4),
        name: first(fields, 5)?.bytes.toString() ?? '',
        kind: first(fields, 6)?.value ?? 0,
        attributes: decodeAttributes(bytes, 9),
        links: fields
          .filter(({ number }) => number === 13)
          .map((link) => {
            const inner = fieldsOf(link.bytes);
            return {
              traceId: first(inner, 1)?.bytes.toString('hex') ?? '',
              spanId: first(inner, 2)?.bytes.toString('hex') ?? '',
            };
          }),
        status: first(fieldsOf(first(fields, 15)?.bytes ?? Buffer.alloc(0)), 3)?.value ?? 0,
        resource: resourceAttributes,
      };
    });
  });
}

function fieldsOf(bytes: Buffer): Field[] {
  const reader = new ProtobufReader(bytes, createRequestPartLimit(1_000_000));
  const fields: Field[] = [];
  while (reader.more) {
    const tag = reader.tag();
    const field: { number: number; value: number; bytes: Buffer } = {
      number: tag >>> 3,
      value: 0,
      bytes: Buffer.alloc(0),
    };
    if ((tag & 7) === 0) field.value = reader.uint32();
    else if ((tag & 7) === 2) field.bytes = bytes.subarray(reader.delimited(), reader.position);
    else reader.skip(tag);
    fields.push(field);
  }
  return fields;
}

function first(fields: readonly Field[], number: number): Field | undefined {
  return fields.find((field) => field.number === number);
}

/** Returns the KeyValue messages of field `number` that have string and integer values. */
function decodeAttributes(message: Buffer, number: number): Record<string, string | number | undefined> {
  return Object.fromEntries(
    fieldsOf(message)
      .filter((field) => field.number === number)
      .map(({ bytes }) => {
        const pair = fieldsOf(bytes);
        const value = fieldsOf(first(pair, 2)?.bytes ?? Buffer.alloc(0));
        return [first(pair, 1)?.bytes.toString() ?? '', first(value, 1)?.bytes.toString() ?? first(value, 3)?.value];
      }),
  );
}
