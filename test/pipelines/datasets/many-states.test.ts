/** Examples that were changed very many times, and that have very many attachments. */

import { randomUUID } from 'node:crypto';
import { beforeEach, expect, it } from 'vitest';
import type { Database, Sql } from '../../../infra/postgres/pool.ts';
import { hardDeleteExamples } from '../../../pipelines/datasets/delete-examples.ts';
import { createDataset, type ExamplePart, sendExampleParts } from '../../api/main/datasets/dataset-requests.ts';
import { addOrganization, type OrganizationUnderTest, startApi } from '../../api/start-api.ts';
import { forSuite } from '../../for-suite.ts';

const states = 500;
const api = forSuite(() => startApi());
let owner: OrganizationUnderTest;
let key: string;
let datasetId: string;
beforeEach(async () => {
  owner = await addOrganization(api.database, randomUUID());
  key = owner.adminKey;
  datasetId = await createDataset(api, key);
});

const send = (method: 'POST' | 'PATCH', parts: readonly ExamplePart[]) =>
  sendExampleParts(api, { key, method, datasetId }, parts);
const list = (count: number) => Array.from({ length: count }, (_, n) => `a${n}`);
const attach = (id: string, names: readonly string[]) =>
  names.map((name): ExamplePart => [`${id}.attachment.${name}`, name, 'text/plain']);
async function countSets(): Promise<number> {
  const sets = await api.services.clickhouse.query({
    name: 'test',
    sql: 'SELECT DISTINCT run_id FROM attachments FINAL WHERE tenant_id = {tenant:UUID}',
    params: { tenant: owner.workspaceIds[0] },
  });
  return sets.length;
}

/** Returns a database, and the number of rows of the largest result of its transactions. */
function countRows(database: Database) {
  const largest = { rows: 0 };
  const wrap = (tx: Sql): Sql => ({
    ...tx,
    query: async <Row>(...statement: Parameters<Sql['query']>) => {
      const rows = await tx.query<Row>(...statement);
      largest.rows = Math.max(largest.rows, rows.length);
      return rows;
    },
  });
  const counted: Database = {
    ...database,
    transaction: (work, options) => database.transaction((tx) => work(wrap(tx)), options),
  };
  return { counted, largest };
}

it('a permanent deletion reads one row for each example, and deletes the attachments of all states', async () => {
  const [first, second, kept] = [randomUUID(), randomUUID(), randomUUID()];
  const add = (id: string): ExamplePart[] => [[id, {}], [`${id}.inputs`, {}], ...attach(id, ['one'])];
  expect((await send('POST', [...add(first), ...add(second), ...add(kept)])).status).toBe(201);
  expect((await send('PATCH', [[first, {}], ...attach(first, ['two'])])).status).toBe(201);
  await api.database.execute(
    `INSERT INTO examples (workspace_id, dataset_id, id, valid_from, valid_to, created_at, inputs, metadata, searchable)
     SELECT $1, $2, id, time, time + interval '1 second', time, '{}', '{}', '{}' FROM unnest($3::uuid[]) AS example (id),
       generate_series(1, $4::int) AS n, LATERAL (SELECT now() - n * interval '1 second' AS time) AS times`,
    [owner.workspaceIds[0], datasetId, [first, second], states],
  );
  expect(await countSets()).toBe(4);
  const { counted, largest } = countRows(api.database);
  const deps = { database: counted, clickhouse: api.services.clickhouse };
  await hardDeleteExamples(deps, owner.workspaceIds[0], [first, second]);
  expect(largest.rows).toBe(2);
  expect(await countSets()).toBe(1);
  const left = await api.database.query('SELECT id FROM examples WHERE dataset_id = $1', [datasetId]);
  expect(left).toEqual([{ id: kept }]);
  expect((await api.ask(key, 'GET', `/datasets/${datasetId}`)).body.example_count).toBe(1);
});

it('an example has at most a thousand attachments', async () => {
  const id = randomUUID();
  const names = list(1_000);
  const add = (more: readonly string[]) => send('POST', [[id, {}], [`${id}.inputs`, {}], ...attach(id, more)]);
  expect(await add([...names, 'one more'])).toMatchObject({ status: 422 });
  expect(await add(names)).toMatchObject({ status: 201 });
  const change = (added: readonly string[], retain: readonly string[]) =>
    send('PATCH', [[id, {}], [`${id}.attachments_operations`, { retain }], ...attach(id, added)]);
  expect(await change(['b'], names)).toMatchObject({ status: 422 });
  expect(await change(['b'], names.slice(1))).toMatchObject({ status: 201 });
  const { body } = await api.ask(key, 'GET', `/examples/${id}`);
  expect(Object.keys(body.attachment_urls)).toHaveLength(1_000);
});
