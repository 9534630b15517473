import { AvroWriter } from '../../infra/event-log/avro.ts';
import { hasSameName, type StreamEvent, type StreamEventName } from './stream-event.ts';

/** Placeholder for partition and offset. The sink fills them in, because the producer does not know them. */
const emptyPosition = Buffer.alloc(8);

/** The leading fields, which are the same for all events of one attempt that are published together. */
export type StreamEventHead = Pick<
  StreamEvent,
  'deploymentId' | 'threadId' | 'runId' | 'kept' | 'expiresAtMicros' | 'createdAtMicros' | 'attempt'
>;

export type StreamEventBody = Omit<StreamEvent, keyof StreamEventHead>;

/**
 * Encodes events as Avro records of `schemas/avro/stream-event.avsc`, each framed by `prefix`. The fields must be
 * written in the order of the schema; a test decodes the result with the schema. The common fields are encoded once and
 * copied, because for small events they make up most of the bytes and nearly all of the encoding time.
 */
export function encodeStreamEvents(
  prefix: Uint8Array,
  head: StreamEventHead,
  events: readonly StreamEventBody[],
): Buffer[] {
  const writer = new AvroWriter(events.reduce((sum, { data }) => sum + data.length + 256, 0));
  let headEnd = 0;
  let last: { readonly event: StreamEventBody; readonly from: number; readonly to: number } | undefined;
  return events.map((event) => {
    const start = writer.position;
    if (start === 0) {
      writer.raw(prefix);
      encodeHead(writer, head);
      headEnd = writer.position;
    } else writer.copyRange(0, headEnd);
    writer.long(event.seq);
    writer.long(event.threadSeq);
    if (last !== undefined && hasSameName(last.event, event)) writer.copyRange(last.from, last.to);
    else {
      const from = writer.position;
      encodeNames(writer, event);
      last = { event, from, to: writer.position };
    }
    encodeData(writer, event);
    return writer.since(start);
  });
}

function encodeHead(writer: AvroWriter, head: StreamEventHead): void {
  writer.ascii(head.deploymentId);
  writer.ascii(head.threadId);
  writer.ascii(head.runId);
  writer.raw(emptyPosition);
  writer.raw(emptyPosition);
  writer.byte(head.kept ? 1 : 0);
  writer.long(head.expiresAtMicros);
  writer.long(head.createdAtMicros);
  writer.long(head.attempt);
}

function encodeNames(writer: AvroWriter, { mode, event, namespace }: StreamEventName): void {
  writer.string(mode);
  writer.string(event);
  writer.string(namespace);
}

function encodeData(writer: AvroWriter, { data, isEnd }: StreamEventBody): void {
  writer.bytes(data);
  writer.byte(isEnd ? 1 : 0);
}
