import { AvroWriter } from './avro-writer.ts';
import { prefixBytes } from './wire-format.ts';

/** Constant, so that the same records give the same bytes and therefore the same digest and token. */
const syncMarker = Buffer.from('runlake-avro-1.0');

/**
 * Builds an Avro object container of `records`, which share one schema, with one block per record. ClickHouse then
 * finds the end of each record by the size of its block, and a damaged record cannot shift the values of the next ones.
 * Strips the five-byte wire-format prefix of each record. Source: Apache Avro 1.12, "Object Container Files".
 */
export function avroContainer(schema: string, records: readonly Buffer[]): Buffer {
  let bytes = 64 + schema.length * 2;
  for (const record of records) bytes += record.length + 32;
  const writer = new AvroWriter(bytes);
  writer.raw(Buffer.from('Obj\u0001', 'latin1'));
  writer.long(2);
  writer.string('avro.codec');
  writer.string('null');
  writer.string('avro.schema');
  writer.string(schema);
  writer.long(0);
  writer.raw(syncMarker);
  for (const record of records) {
    writer.long(1);
    writer.long(record.length - prefixBytes);
    writer.raw(record.subarray(prefixBytes));
    writer.raw(syncMarker);
  }
  return writer.since(0);
}
