/**
 * Confluent's wire format: a zero byte, the schema id in four bytes (big-endian), the Avro record.
 * Source: Confluent Schema Registry documentation, "Wire format".
 */
export const prefixBytes = 5;

/** The five-byte prefix of records of `schemaId`. */
export function wirePrefix(schemaId: number): Buffer {
  const prefix = Buffer.alloc(prefixBytes);
  prefix.writeUInt32BE(schemaId, 1);
  return prefix;
}

/** The schema id of a framed record; `undefined` if the value is not in this format. */
export function schemaIdOf(value: Buffer): number | undefined {
  return value.length >= prefixBytes && value[0] === 0 ? value.readUInt32BE(1) : undefined;
}
