import { AvroContainer, type ContainerRecord } from '../../infra/event-log/avro.ts';

/** Builds an {@link AvroContainer} of records. */
export function encodeAvroContainer(schema: string, records: readonly ContainerRecord[]): Buffer {
  const bytes = records.reduce((sum, { value, prefix }) => sum + value.length + 32 + 10 * prefix.length, 0);
  const container = new AvroContainer(schema, bytes);
  for (const record of records) container.add(record);
  return container.finish();
}
