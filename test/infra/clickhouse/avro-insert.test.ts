import { randomUUID } from 'node:crypto';
import { beforeEach, describe, expect, it } from 'vitest';
import { AvroWriter, buildContainerSchema, buildWirePrefix } from '../../../infra/event-log/avro.ts';
import { costExpressions, selectColumn } from '../../../pipelines/costs/cost-sql.ts';
import { encodeRunEvent, type RunEvent } from '../../../pipelines/ingest/run-event/run-event.ts';
import { runEvents } from '../../../schemas/topics.ts';
import { encodeAvroContainer } from '../../engines/encode-avro-container.ts';
import { runOnStoredTable } from '../../engines/on-stored-table.ts';
import { freshStores } from '../../engines/stores.ts';
import { createProxyTo, forSuite } from '../../for-suite.ts';
import { neverExpires } from '../../pipelines/runs/run-events.ts';

const stores = forSuite(() => freshStores());
const clickhouse = createProxyTo(() => stores.clickhouse);
beforeEach(async () => {
  for (const table of filled) await runOnStoredTable(clickhouse, table, (stored) => `TRUNCATE TABLE ${stored}`);
});

/** The table, and every target of a view on it. */
const filled = ['runs', 'traces', 'run_locator', 'trace_locations'] as const;

const run = {
  tenantId: randomUUID(),
  traceId: randomUUID(),
  runId: randomUUID(),
  projectId: randomUUID(),
  startTimeMicros: 1_767_323_045_123_456,
  traceTimeMicros: 1_767_323_045_000_001,
  receivedAtMicros: 1_767_323_046_000_001,
  userId: randomUUID(),
  keyId: randomUUID(),
};
const parent = randomUUID();
const post = record({
  ...run,
  kind: 'post',
  dottedOrder: 'order',
  values: {
    name: 'näme',
    runType: 'llm',
    startedAtMicros: 1_767_323_045_123_457,
    parentRunId: parent,
    inputs: Buffer.from('{"a":"\\u0000\\ud800","n":12345678901234567890123}'),
    promptTokens: 2 ** 51 - 1,
    promptCost: '0.000000000000000001',
  },
});
const patch = record({
  ...run,
  kind: 'patch',
  receivedAtMicros: run.receivedAtMicros + 5,
  values: { endedAtMicros: 1_767_323_049_123_457, outputs: Buffer.from([0x7b, 0x00, 0xff, 0x7d]) },
});

function record(event: RunEvent): Buffer {
  const writer = new AvroWriter();
  encodeRunEvent(writer, event);
  return Buffer.concat([buildWirePrefix(1), writer.since(0)]);
}

const insert = (records: readonly Buffer[], options: { schema?: string; columns?: readonly string[] } = {}) => {
  const { schema = runEvents.schema, columns = runEvents.columns } = options;
  const body = encodeAvroContainer(
    buildContainerSchema(schema, runEvents.prefix),
    records.map((value) => ({ value, prefix: [2n ** 62n + 1n, 1n, ...neverExpires] })),
  );
  const { table } = runEvents;
  return clickhouse.insertBody({
    name: 'run-events',
    table,
    columns: [...runEvents.prefix, ...columns],
    format: 'Avro',
    body,
  });
};

const countRows = async (table: string, final = '') =>
  (await clickhouse.query<{ rows: number }>({ name: 'test', sql: `SELECT count() AS rows FROM ${table} ${final}` }))[0]!
    .rows;
const countFilledRows = async (final = '') => Promise.all(filled.map((table) => countRows(table, final)));

describe('run events, one Avro block for each record', () => {
  it('a post and a patch merge into one run with unchanged values', async () => {
    await insert([post]);
    await insert([patch]);
    expect(
      await clickhouse.query({
        name: 'test',
        sql: `WITH ${costExpressions}
          SELECT * EXCEPT outputs, hex(outputs) AS outputs, hex(substring(ranked_outputs, 1, 8)) AS rank, ${selectColumn('prompt_cost')}
          FROM runs FINAL`,
        settings: { asterisk_include_alias_columns: 1 },
      }),
    ).toEqual([
      expect.objectContaining({
        tenant_id: run.tenantId,
        session_id: run.projectId,
        trace_id: run.traceId,
        id: run.runId,
        start_time: '2026-01-02T03:04:05.123456Z',
        trace_time: '2026-01-02T03:04:05.000001Z',
        first_received_at: '2026-01-02T03:04:06.000001Z',
        sender: ['2026-01-02T03:04:06.000001Z', run.userId, run.keyId],
        dotted_order: 'order',
        rank: 'C000000000000001',
        deleted_at: null,
        name: 'näme',
        run_type: 'llm',
        started_at: '2026-01-02T03:04:05.123457Z',
        parent_run_id: parent,
        inputs: '{"a":"\\u0000\\ud800","n":12345678901234567890123}',
        prompt_tokens: 2 ** 51 - 1,
        prompt_cost: '0.000000000000000001',
        ended_at: '2026-01-02T03:04:09.123457Z',
        outputs: '7B00FF7D',
        // Each text is stored with eight bytes.
        inputs_bytes: 48 + 8,
        outputs_bytes: 4 + 8,
        other_bytes: Buffer.byteLength('ordernäme') + 16,
        error: null,
      }),
    ]);
  });

  it('materialized views are filled by the same insert', async () => {
    await insert([post, patch]);
    expect(await clickhouse.query({ name: 'test', sql: 'SELECT * FROM traces FINAL' })).toEqual([
      {
        tenant_id: run.tenantId,
        hour: '2026-01-02T03:00:00Z',
        trace_id: run.traceId,
        pick: {
          accepted_at: '2026-01-02T03:04:06.000001Z',
          run_id: run.runId,
          session_id: run.projectId,
          user_id: run.userId,
          key_id: run.keyId,
        },
      },
    ]);
    expect(await countFilledRows('FINAL')).toEqual(filled.map(() => 1));
  });

  it('a batch that is sent again, whole or in parts, merges in every table', async () => {
    for (let time = 0; time < 3; time++) await insert([post, patch]);
    await insert([patch]);
    await insert([post]);
    expect(await countFilledRows('FINAL')).toEqual(filled.map(() => 1));
  });
});

const broken = (change: (bytes: Buffer) => void) => {
  const bytes = Buffer.from(post);
  change(bytes);
  return bytes;
};

describe('records that ClickHouse refuses', () => {
  it.each([
    ['that is truncated', post.subarray(0, -10)],
    ['that is empty', post.subarray(0, 5)],
    ['of zeros', Buffer.alloc(80)],
    ['of ones', Buffer.alloc(80, 0xff)],
    ['with an endless length varint', broken((bytes) => bytes.fill(0xff, 5, 8))],
    ['with a negative length', broken((bytes) => bytes.writeUInt8(1, 5))],
    ['with a key that is no UUID', record({ ...run, tenantId: 'x'.repeat(36), kind: 'post', values: {} })],
    ['with a parent that is no UUID', record({ ...run, kind: 'post', values: { parentRunId: 'nobody' } })],
  ])('refuses the insert of a record %s as INSERT_DATA_REFUSED and stores nothing', async (_, bad) => {
    await expect(insert([post, bad])).rejects.toMatchObject({ code: 'INSERT_DATA_REFUSED' });
    expect(await countFilledRows()).toEqual(filled.map(() => 0));
  });
});

describe('schemas that do not fit the table', () => {
  const renamed = runEvents.schema.replace('"name": "tags"', '"name": "tagz"');
  it.each<[string, { schema?: string; columns?: readonly string[] }]>([
    ['a column that the table lacks', { columns: [...runEvents.columns, 'nowhere'] }],
    [
      'a field that the table lacks',
      { schema: renamed, columns: runEvents.columns.map((name) => name.replace(/^tags$/, 'tagz')) },
    ],
    ['a column that the schema lacks', { schema: renamed }],
    ['a field of another type', { schema: retypeField('trace_id', 'double') }],
  ])('refuses %s as SCHEMA_MISMATCH', async (_, options) => {
    await expect(insert([post], options)).rejects.toMatchObject({ code: 'SCHEMA_MISMATCH' });
    expect(await countRows('runs')).toBe(0);
  });
});

function retypeField(field: string, type: string): string {
  const schema = JSON.parse(runEvents.schema) as { fields: { name: string; type: unknown }[] };
  for (const one of schema.fields) if (one.name === field) one.type = type;
  return JSON.stringify(schema);
}
