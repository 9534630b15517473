import { expect, it } from 'vitest';
import { readNullableTextRows } from '../../../infra/clickhouse/row-binary.ts';
import { costExpressions, costSql } from '../../../pipelines/costs/cost-sql.ts';
import { type RunPrice, type RunValues, runTypes } from '../../../pipelines/ingest/run-event/run-event.ts';
import { isModelCallSql, type RunColumn, runColumns, toMicrosSql } from '../../../pipelines/runs/run-columns.ts';
import { readRunRows } from '../../../pipelines/runs/run-rows.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { Random } from '../../histories/random.ts';
import { seed } from '../../house/seed.ts';
import { insertEvents, json, noonMicros, projectId, runEvent, tenantId } from './run-events.ts';

const stores = forSuite(() => freshStores());

const ofModelCalls = (sql: string) => `if(${isModelCallSql}, ${sql}, NULL)`;
const columnSql: Readonly<Record<RunColumn, string>> = {
  ...runColumns,
  receivedAtMicros: toMicrosSql('first_received_at'),
  serialized: 'serialized',
  usageDetails: ofModelCalls(costSql.usage_details),
  priceModelId: ofModelCalls('price_model_id'),
};
const columns = Object.keys(columnSql) as RunColumn[];
const runs = 600;

it('the values of a page are those of the SQL expressions', async () => {
  const random = new Random(seed);
  const events = Array.from({ length: runs }, (_, at) => {
    const startTimeMicros = noonMicros + at * 1_000;
    const event = runEvent({ runId: random.uuid(), startTimeMicros, values: drawValues(random, startTimeMicros) });
    const patch = { ...event, kind: 'patch' as const, values: drawValues(random, startTimeMicros) };
    return random.chance(0.5) ? [event] : [event, patch];
  });
  await insertEvents(stores.clickhouse, events.flat());
  const computed = await readBySql();
  expect(computed.size).toBe(runs);
  const keys = events.map(([event]) => ({ ...event!, projectId }));
  const rows = await readRunRows(stores.clickhouse, tenantId, keys, new Set(columns));
  expect(rows).toHaveLength(runs);
  for (const row of rows) {
    const read = Object.fromEntries(columns.map((column) => [column, row.text(column) ?? null]));
    expect(read, `RUNLAKE_TEST_SEED=${seed}`).toEqual(computed.get(row.key.runId));
  }
  // Each value is read with the stored columns that it needs, not only with those of the others.
  const [call] = rows.filter((row) => row.text('runType') === 'llm' && row.text('totalCost') !== undefined);
  const key = keys.filter(({ runId }) => runId === call?.key.runId);
  for (const column of columns) {
    const [row] = await readRunRows(stores.clickhouse, tenantId, key, new Set([column]));
    expect(row?.text(column), column).toBe(call?.text(column));
  }
  const [ofType] = await readRunRows(stores.clickhouse, tenantId, key, new Set<RunColumn>(['runType']));
  expect(ofType?.text('totalCost')).toBeUndefined();
});

/** Reads all columns of all runs with SQL, which filters and exports use for most of them. */
async function readBySql(): Promise<Map<string, Record<string, string | null>>> {
  const result = await stores.clickhouse.queryText({
    name: 'test',
    sql: `WITH ${costExpressions} SELECT ${columns.map((column) => `CAST(${columnSql[column]} AS Nullable(String))`).join()}
          FROM runs FINAL WHERE tenant_id = {tenantId:UUID}`,
    params: { tenantId },
    format: 'RowBinary',
  });
  const rows = readNullableTextRows(result, columns.length).map((values) =>
    Object.fromEntries(columns.map((column, at) => [column, values[at]?.toString() ?? null])),
  );
  return new Map(rows.map((row) => [String(row.id), row]));
}

const texts = ['', 'ö "q" \\ \n', '\u0000', 'x'.repeat(300)];
const counts = [0, 1, 7, 1.5, -3, '5', 'x', true, null, 1e3, 2 ** 53 + 2, 1e30, {}, [1]];
const decimals = ['0', '0.00000000000000000001', '0.000002', '1.5', '12'];

function drawValues(random: Random, startTimeMicros: number): RunValues {
  const values: RunValues = {};
  const maybe = <Key extends keyof RunValues>(key: Key, draw: () => RunValues[Key]) => {
    if (random.chance(0.7)) values[key] = draw();
  };
  const text = () => random.pick(texts);
  const document = () => json(random.pick([{}, { metadata: { thread_id: text(), n: 1 } }, text(), [text()], null]));
  const kinds = () => Object.fromEntries(['cache_read', 'audio'].map((kind) => [kind, random.pick(counts)]));
  maybe('name', text);
  maybe('runType', () => random.pick([...runTypes, 'llm', 'llm', 'embedding']));
  maybe('startedAtMicros', () => startTimeMicros + random.pick([0, -999_999, 1_000_000, 1_000_001, 5_000_000]));
  maybe('endedAtMicros', () => startTimeMicros + random.int(1e9));
  maybe('parentRunId', () => random.uuid());
  maybe('referenceExampleId', () => random.uuid());
  maybe('tags', () => json([text()]));
  maybe('error', () => json(text()));
  for (const key of ['inputs', 'outputs', 'events', 'extra', 'serialized'] as const) maybe(key, document);
  for (const key of ['promptTokens', 'completionTokens', 'totalTokens'] as const)
    maybe(key, () => random.pick([0, 1, 20, 100_000_000_000]));
  for (const key of ['promptCost', 'completionCost', 'totalCost'] as const)
    if (random.chance(0.1)) values[key] = random.pick(decimals);
  maybe('usageDetails', () =>
    json(
      random.pick([{}, { prompt_token_details: kinds(), completion_token_details: random.pick([kinds(), null, 1]) }]),
    ),
  );
  maybe('firstTokenTimeMicros', () => startTimeMicros + random.int(1e6));
  maybe('price', () => drawPrice(random));
  return values;
}

function drawPrice(random: Random): RunPrice {
  const source = random.between(1, 100);
  if (random.chance(0.1)) return { source };
  const kinds = () =>
    ['cache_read', 'audio', 'missing'].filter(() => random.chance(0.5)).map((kind) => [kind, random.pick(decimals)]);
  const [prompt, completion] = [random.pick(decimals), random.pick(decimals)];
  return {
    source,
    tokens: { id: random.uuid(), prompt, completion, details: json({ prompt: kinds(), completion: kinds() }) },
  };
}
