/** One log with records of this release, of an older and of a newer release; the sink reads them all. */
import { beforeAll, expect, test } from 'vitest';
import { runEvents, streamEvents, type Topic } from '../../../../schemas/topics.ts';
import { addColumns } from '../../../engines/on-stored-table.ts';
import { forSuite } from '../../../for-suite.ts';
import { runEvent } from '../../runs/run-events.ts';
import { streamEvent, streamMessage } from '../../streams/stream-events.ts';
import { openDrivenSink, toRecordsAtOffset } from './driven-sink.ts';
import { addWeather, framed } from './sink-under-test.ts';

type Fields = { name: string; type: unknown; default?: unknown; doc?: string }[];

function changeFields(topic: Topic, change: (fields: Fields) => Fields): string {
  const schema = JSON.parse(topic.schema) as { fields: Fields };
  return JSON.stringify({ ...schema, fields: change(schema.fields) });
}

const newField = { name: 'weather', type: ['null', 'string'], default: null };
const ids = {
  newer: 901,
  older: 902,
  newerStream: 903,
  movedStart: 904,
  retypedStart: 905,
  otherText: 906,
  broken: 907,
};
const schemas = {
  [ids.newer]: changeFields(runEvents, (fields) => [...fields, newField]),
  [ids.older]: changeFields(runEvents, (fields) => fields.filter(({ name }) => !name.includes('price'))),
  [ids.newerStream]: changeFields(streamEvents, (fields) => [...fields, newField]),
  [ids.movedStart]: changeFields(runEvents, ([first, second, ...rest]) => [second!, first!, ...rest]),
  [ids.retypedStart]: changeFields(runEvents, ([first, ...rest]) => [{ ...first!, type: 'bytes' }, ...rest]),
  // A registry may return the same schema as different text.
  [ids.otherText]: changeFields(runEvents, (fields) => fields.map(({ doc: _words, ...field }) => field)),
  [ids.broken]: '{"type": "record"',
};

const under = forSuite(() => openDrivenSink({ schemas }));
beforeAll(async () => {
  await addWeather(under.stores.clickhouse);
  await addColumns(under.stores.clickhouse, 'stream_events', 'ADD COLUMN weather Nullable(String)');
});

const as = (schemaId: number, value: Buffer, tail: Buffer = Buffer.alloc(0)) => {
  const copy = Buffer.concat([value, tail]);
  copy.writeUInt32BE(schemaId, 1);
  return copy;
};
const sunny = Buffer.concat([Buffer.from([2, 10]), Buffer.from('sunny')]);
const named = (name: string) => framed(runEvent({ values: { name } }));

test('old, new and present records in one batch, each with the columns that it has', async () => {
  const values = [
    named('present'),
    as(ids.newer, named('newer'), sunny),
    // Without the last five fields, which are those of prices: each null takes one byte.
    as(ids.older, named('older').subarray(0, -5)),
    as(ids.newer, named('newer, says nothing'), Buffer.from([0])),
    as(ids.otherText, named('in other words')),
    named('present too'),
  ];
  const batch = values.map((value) => ({ key: 'any', value }));
  // Delivered twice: first with an empty schema cache, then with a filled one.
  for (const offset of [0, 100]) await under.deliver(runEvents, toRecordsAtOffset(offset, batch));
  const rows = await under.stores.clickhouse.query({
    name: 'test',
    sql: 'SELECT name, weather FROM runs FINAL ORDER BY name',
  });
  expect(rows).toEqual([
    { name: 'in other words', weather: null },
    { name: 'newer', weather: 'sunny' },
    { name: 'newer, says nothing', weather: null },
    { name: 'older', weather: null },
    { name: 'present', weather: null },
    { name: 'present too', weather: null },
  ]);
  expect(await under.stores.database.query('SELECT FROM dead_letters')).toEqual([]);
});

test('a newer stream event gets its offset like any other', async () => {
  const present = streamMessage(streamEvent({ seq: 1 }), under.log);
  const newer = streamMessage(streamEvent({ seq: 2 }), under.log);
  await under.deliver(
    streamEvents,
    toRecordsAtOffset(70, [present, { ...newer, value: as(ids.newerStream, newer.value, sunny) }]),
  );
  const rows = await under.stores.clickhouse.query({
    name: 'test',
    sql: 'SELECT seq, log_offset, weather FROM stream_events ORDER BY seq',
  });
  expect(rows).toEqual([
    { seq: 1, log_offset: 70, weather: null },
    { seq: 2, log_offset: 71, weather: 'sunny' },
  ]);
});

test.each<[string, number]>([
  ['a different order in the prefix that the sink reads and writes', ids.movedStart],
  ['a different type in that prefix', ids.retypedStart],
  ['another topic', 2],
  ['text that is not a schema', ids.broken],
])('a record under a schema of %s is a poison record, and its neighbours are stored', async (_, schemaId) => {
  await under.stores.database.query('DELETE FROM dead_letters');
  const name = `beside ${schemaId}`;
  const batch = [named(name), as(schemaId, named('poison')), named(name)].map((value) => ({ key: 'any', value }));
  await under.deliver(runEvents, toRecordsAtOffset(schemaId * 10, batch));
  expect(await under.stores.database.query('SELECT step FROM dead_letters')).toEqual([{ step: 'schema' }]);
  const rows = await under.stores.clickhouse.query({
    name: 'test',
    sql: 'SELECT 1 FROM runs FINAL WHERE name = {name:String}',
    params: { name },
  });
  expect(rows).toHaveLength(2);
});
