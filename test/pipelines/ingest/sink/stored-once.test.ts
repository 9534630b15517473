import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { AvroWriter, buildWirePrefix } from '../../../../infra/event-log/avro.ts';
import type { LogMessage, LogRecord } from '../../../../infra/event-log/event-log.ts';
import { encodeAttachment } from '../../../../pipelines/attachments/read-attachment.ts';
import { encodeFeedback } from '../../../../pipelines/feedback/feedback-event.ts';
import { insertBatch } from '../../../../pipelines/ingest/sink/insert-batch.ts';
import { attachmentEvents, feedbackEvents, runEvents, streamEvents, type Topic } from '../../../../schemas/topics.ts';
import { isLogicalTable, runOnStoredTable } from '../../../engines/on-stored-table.ts';
import { forSuite } from '../../../for-suite.ts';
import { deriveUuid, json, noonMicros, projectId, runEvent, tenantId } from '../../runs/run-events.ts';
import { streamEvent, streamMessage } from '../../streams/stream-events.ts';
import { buildContainer, openSink, toLogMessage } from './sink-under-test.ts';

const under = forSuite(() => openSink());

const weekMicros = 7 * 24 * 3_600 * 1_000_000;

function record(topic: Topic, encode: (writer: AvroWriter) => void): LogMessage {
  const writer = new AvroWriter(1_024);
  writer.raw(buildWirePrefix(under.log.schemaId(topic)));
  encode(writer);
  return { key: 'any', value: Buffer.from(writer.since(0)) };
}

/** Returns four events of each kind, as the log contains them. */
const eventsOf: Record<string, { topic: Topic; messages: () => LogMessage[] }> = {
  runs: {
    topic: runEvents,
    messages: () =>
      Array.from({ length: 4 }, (_, index) =>
        toLogMessage(
          runEvent({ startTimeMicros: noonMicros + index * weekMicros, values: { inputs: json({ index }) } }),
        ),
      ),
  },
  feedback: {
    topic: feedbackEvents,
    messages: () =>
      Array.from({ length: 4 }, (_, index) =>
        record(feedbackEvents, (writer) =>
          encodeFeedback(writer, {
            tenantId,
            runId: randomUUID(),
            id: randomUUID(),
            receivedAtMicros: noonMicros,
            projectId,
            key: `key ${index}`,
            score: json(1),
            sourceType: 'api',
            userId: deriveUuid('user'),
            createdAtMicros: noonMicros,
            modifiedAtMicros: noonMicros,
          }),
        ),
      ),
  },
  attachments: {
    topic: attachmentEvents,
    messages: () =>
      Array.from({ length: 4 }, (_, index) =>
        record(attachmentEvents, (writer) =>
          encodeAttachment(writer, {
            tenantId,
            runId: randomUUID(),
            name: `file ${index}`,
            receivedAtMicros: noonMicros,
            mimeType: 'text/plain',
            content: Buffer.from(`content ${index}`),
          }),
        ),
      ),
  },
  streams: {
    topic: streamEvents,
    messages: () => {
      const runId = randomUUID();
      return Array.from({ length: 4 }, (_, seq) => streamMessage(streamEvent({ runId, seq }), under.log));
    },
  },
};

/**
 * Every table that an insert of the sink writes to, and the topic from which it is written. A new table fails this test
 * until it is added here.
 */
const writtenTables: Record<string, keyof typeof eventsOf> = {
  runs: 'runs',
  traces: 'runs',
  run_locator: 'runs',
  event_versions: 'runs',
  trace_locations: 'runs',
  feedback: 'feedback',
  attachments: 'attachments',
  stream_events: 'streams',
};
const otherTables = new Set([
  'run_events',
  'run_keys',
  'usage_hourly',
  'usage_daily',
  'run_facts',
  'trace_marks',
  'deletion_keys',
  'event_log',
  'runlake_migrations',
]);

test('the list contains every table of the migrations', async () => {
  const tables = await under.rows<{ name: string }>(
    `SELECT name FROM system.tables WHERE database = currentDatabase() AND ${isLogicalTable}`,
  );
  const names = tables.map(({ name }) => name).filter((name) => !otherTables.has(name));
  expect(names.sort()).toEqual(Object.keys(writtenTables).sort());
});

function toRecords(messages: readonly LogMessage[], firstOffset: number): LogRecord[] {
  return messages.map(({ key, value }, index) => ({
    partition: 0,
    offset: firstOffset + index,
    key,
    value,
    headers: {},
    version: BigInt(firstOffset + index),
  }));
}

async function insert(topic: Topic, records: readonly LogRecord[]): Promise<void> {
  const schemaId = under.log.schemaId(topic);
  const { clickhouse, database } = under.stores;
  const good = records.map((each) => ({ record: each, schemaId }));
  const batch = { topic, partition: 0, schema: buildContainer(topic), records: good };
  await insertBatch(batch, { log: under.log, clickhouse, database });
}

describe.each(Object.entries(writtenTables))('%s', (table, kind) => {
  const { topic, messages } = eventsOf[kind] as (typeof eventsOf)[string];
  const contents = async (final = '') => {
    const rows = await under.stores.clickhouse.queryText({
      name: 'test',
      sql: `SELECT * FROM ${table} ${final} ORDER BY ALL`,
      format: 'TabSeparated',
    });
    return rows.toString().split('\n').slice(0, -1);
  };

  test('a repeat, whole or with other batch boundaries, is stored once when read and when merged', async () => {
    const records = toRecords(messages(), 400);
    await insert(topic, records);
    const before = await contents('FINAL');
    await insert(topic, records);
    for (const each of records) await insert(topic, [each]);
    await insert(topic, records.slice(1, 3));
    await insert(topic, records.toReversed());
    expect(await contents('FINAL')).toEqual(before);
    await runOnStoredTable(under.stores.clickhouse, table, (stored) => `OPTIMIZE TABLE ${stored} FINAL`);
    expect(await contents()).toEqual(before);
  });
});
