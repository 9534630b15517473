import { randomUUID } from 'node:crypto';
import type { Client } from 'langsmith';
import { beforeAll, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { startRunsApi } from './runs.fixture.ts';

const runs = forSuite(() => startRunsApi());
let client: Client;
let [rootId, childId] = ['', ''];

beforeAll(async () => {
  [rootId, childId] = runs.trace.map(({ runId }) => runId) as [string, string];
  client = await openClient(runs.api, runs.ours.workspaceKeys[0]);
});

const readV2 = (runId: string, selects: readonly string[]) =>
  client.runs.retrieve(runId, { project_id: runs.projectId, selects: selects as never });

it('a run says whether a current example names it as its source', async () => {
  const { id: dataset_id } = await client.createDataset(randomUUID());
  const example = await client.createExample({ dataset_id, inputs: { n: 1 }, source_run_id: rootId });
  expect(await client.readRun(rootId)).toMatchObject({ in_dataset: true });
  expect(await client.readRun(childId)).toMatchObject({ in_dataset: false });
  expect(await readV2(rootId, ['IS_IN_DATASET'])).toEqual({ is_in_dataset: true });
  await client.deleteExample(example.id);
  expect(await readV2(rootId, ['IS_IN_DATASET'])).toEqual({ is_in_dataset: false });
});

it('examples of other workspaces do not count', async () => {
  const [, key] = runs.ours.workspaceKeys;
  const body = { name: randomUUID() };
  const { id } = (await runs.ask({ url: '/datasets', key, body })).body as unknown as { id: string };
  const example = { dataset_id: id, inputs: {}, source_run_id: childId };
  expect((await runs.ask({ url: '/examples', key, body: example })).status).toBe(200);
  expect(await client.readRun(childId)).toMatchObject({ in_dataset: false });
});

it('a run says when it was last added to an annotation queue', async () => {
  expect(await client.readRun(rootId)).toMatchObject({ last_queued_at: null });
  for (const name of ['one', 'other']) {
    const { id } = await client.createAnnotationQueue({ name });
    await client.addRunsToAnnotationQueue(id, [rootId]);
  }
  const [row] = await runs.api.database.query<{ last: Date }>(
    'SELECT max(added_at) AS last FROM annotation_queue_runs WHERE run_id = $1',
    [rootId],
  );
  const last = new Date(row?.last ?? 0).getTime();
  const { last_queued_at: v1 } = (await client.readRun(rootId)) as unknown as { last_queued_at: string };
  expect(Date.parse(`${v1}Z`)).toBe(last);
  const { last_queued_at: v2 } = (await readV2(rootId, ['LAST_QUEUED_AT'])) as { last_queued_at?: string };
  expect(Date.parse(v2 ?? '')).toBe(last);
  expect(await client.readRun(childId)).toMatchObject({ last_queued_at: null });
});
