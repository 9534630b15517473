/** The mapping from topic to table is data: an additional topic needs only one entry, one schema and its table. */
import { randomUUID } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import { AvroWriter, buildWirePrefix } from '../../../../infra/event-log/avro.ts';
import type { LogMessage } from '../../../../infra/event-log/event-log.ts';
import { defineTopic, topics } from '../../../../schemas/topics.ts';
import { createTable } from '../../../engines/on-stored-table.ts';
import { forSuite } from '../../../for-suite.ts';
import { openDrivenSink, toRecordsAtOffset } from './driven-sink.ts';

const field = (name: string, type: unknown = 'string') => ({ name, type });
const position = { type: 'fixed', name: 'Position', size: 8, logicalType: 'decimal', precision: 18, scale: 0 };
const measurements = defineTopic({
  name: 'measurements',
  table: 'measurements',
  schema: JSON.stringify({
    type: 'record',
    name: 'Measurement',
    fields: [
      field('tenant_id'),
      field('id'),
      field('taken_at', { type: 'long', logicalType: 'timestamp-micros' }),
      field('wanted', 'boolean'),
      field('log_partition', position),
      field('log_offset', 'Position'),
      field('degrees', 'double'),
    ],
  }),
  fixed: [
    ['tenant_id', 'uuid'],
    ['id', 'uuid'],
    ['taken_at', 'key_time'],
    ['wanted', 'flag'],
    ['log_partition', 'position'],
    ['log_offset', 'position'],
  ],
  storedFlag: 'wanted',
  positionFields: { partition: 'log_partition', offset: 'log_offset' },
  dirtyHours: { tenant: 'tenant_id', times: ['taken_at'] },
  tablePartitions: [{ time: 'taken_at', unit: 'day' }],
});

const under = forSuite(() => openDrivenSink({ topics: [...topics, measurements] }));
beforeAll(async () => {
  await createTable(
    under.stores.clickhouse,
    `CREATE TABLE measurements (tenant_id UUID, id UUID, taken_at DateTime64(6, 'UTC'), wanted Bool,
        log_partition Decimal(18, 0), log_offset Decimal(18, 0), degrees Float64, version UInt64)
      ENGINE = ReplacingMergeTree(version) SHARD BY (tenant_id, id) PARTITION BY toDate(taken_at) ORDER BY (tenant_id, id)`,
  );
});

const tenantId = randomUUID();
const noonMicros = Date.UTC(2026, 2, 5, 12) * 1_000;

function encodeMeasurement(id: string, degrees: number, { dayOffset = 0, wanted = true } = {}): LogMessage {
  const writer = new AvroWriter(256);
  writer.raw(buildWirePrefix(under.log.schemaId(measurements)));
  writer.ascii(tenantId);
  writer.ascii(id);
  writer.long(noonMicros + dayOffset * 86_400_000_000);
  writer.byte(wanted ? 1 : 0);
  writer.raw(Buffer.alloc(16));
  const number = Buffer.alloc(8);
  number.writeDoubleLE(degrees);
  writer.raw(number);
  return { key: id, value: Buffer.from(writer.since(0)) };
}

test('its records are stored, merged, stamped and filtered, its hours are marked dirty, its poison records go to the dead-letter queue', async () => {
  const [one, two, unwanted, garbled] = [randomUUID(), randomUUID(), randomUUID(), 'z'.repeat(36)];
  const batch = [
    encodeMeasurement(one, 1),
    encodeMeasurement(two, 2),
    encodeMeasurement(unwanted, 3, { wanted: false }),
    encodeMeasurement(garbled, 4),
    encodeMeasurement(one, 5),
  ];
  for (const offset of [10, 10, 20]) await under.deliver(measurements, toRecordsAtOffset(offset, batch, 3));
  const rows = await under.stores.clickhouse.query({
    name: 'test',
    sql: 'SELECT id, degrees, log_partition, log_offset FROM measurements FINAL ORDER BY degrees',
  });
  expect(rows).toEqual([
    { id: two, degrees: 2, log_partition: 3, log_offset: 21 },
    { id: one, degrees: 5, log_partition: 3, log_offset: 24 },
  ]);
  const { database } = under.stores;
  expect(await database.query('SELECT step, log_offset FROM dead_letters ORDER BY log_offset')).toEqual([
    { step: 'key', log_offset: 13 },
    { step: 'key', log_offset: 23 },
  ]);
  expect(await database.query('SELECT DISTINCT tenant_id, hour FROM usage_dirty_hours')).toEqual([
    { tenant_id: tenantId, hour: '2026-03-05T12:00:00.000000Z' },
  ]);
});

test('a batch with more days than an insert may have is split', async () => {
  const many = Array.from({ length: 120 }, (_, index) => encodeMeasurement(randomUUID(), 0, { dayOffset: -index }));
  await under.deliver(measurements, toRecordsAtOffset(100, many));
  const [stored] = await under.stores.clickhouse.query<{ rows: number }>({
    name: 'test',
    sql: 'SELECT count() AS rows FROM measurements WHERE log_offset >= 100',
  });
  expect(stored).toEqual({ rows: 120 });
});
