import type { AvroWriter } from './avro-writer.ts';

// Fields of the type `["null", …]`: the branch of the union, then the value if it is present.

const absent = 0;
/** Branch 1, as a zig-zag varint. */
const present = 2;

export function optionalString(writer: AvroWriter, value: string | undefined): void {
  if (value === undefined) {
    writer.byte(absent);
    return;
  }
  writer.byte(present);
  writer.string(value);
}

export function optionalLong(writer: AvroWriter, value: number | undefined): void {
  if (value === undefined) {
    writer.byte(absent);
    return;
  }
  writer.byte(present);
  writer.long(value);
}

export function optionalBytes(writer: AvroWriter, value: Uint8Array | undefined): void {
  if (value === undefined) {
    writer.byte(absent);
    return;
  }
  writer.byte(present);
  writer.bytes(value);
}

export function optionalBoolean(writer: AvroWriter, value: boolean | undefined): void {
  if (value === undefined) {
    writer.byte(absent);
    return;
  }
  writer.byte(present);
  writer.byte(value ? 1 : 0);
}
