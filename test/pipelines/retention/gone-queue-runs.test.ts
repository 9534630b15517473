/** Runs of annotation queues after they have expired, or were deleted. */
import { expect, it } from 'vitest';
import { deleteProjectRuns, deleteProjects } from '../../../pipelines/projects/delete-projects.ts';
import { forSuite } from '../../for-suite.ts';
import { openRetention } from './retention-under-test.ts';

const under = forSuite(() => openRetention());

async function addQueue(runIds: readonly string[]): Promise<string> {
  const { id } = (await under.ask('POST', '/annotation-queues', { name: 'review' })).body;
  expect((await under.ask('POST', `/annotation-queues/${id}/runs`, runIds)).status).toBe(200);
  return id;
}

const read = async (path: string) => (await under.ask('GET', `/annotation-queues/${path}`)).body;

async function countRows(queue: string): Promise<number> {
  const [row] = await under.api.database.query<{ rows: number }>(
    'SELECT count(*)::int AS rows FROM annotation_queue_runs WHERE queue_id = $1',
    [queue],
  );
  return row?.rows ?? -1;
}

async function addThreads(queue: string, projectId: string, count: number): Promise<void> {
  await under.api.database.execute(
    `INSERT INTO annotation_queue_runs (id, queue_id, project_id, thread_id)
     SELECT gen_random_uuid(), $1, $2, 'thread ' || n FROM generate_series(1, $3::int) AS n`,
    [queue, projectId, count],
  );
}

/** Stores a run that has expired, and two that have not. */
async function sendRuns(): Promise<[expired: string, ...others: string[]]> {
  const projectId = await under.addProject('shortlived');
  const traces = [];
  for (const daysAgo of [15, 2, 1]) traces.push(await under.sendTrace(projectId, daysAgo));
  return traces.map(({ traceId }) => traceId) as [string, string, string];
}

it('an expired run is in no list, page, index or count of its queue', async () => {
  const [expired, second, third] = await sendRuns();
  const queue = await addQueue([expired, second as string, third as string]);
  const page = async (offset: number) => {
    const runs = (await read(`${queue}/runs?limit=1&offset=${offset}`)) as { id: string }[];
    return runs.map(({ id }) => id);
  };
  expect([await page(0), await page(1), await page(2)]).toEqual([[second], [third], []]);
  expect([(await read(`${queue}/run/0`)).id, (await read(`${queue}/run/1`)).id]).toEqual([second, third]);
  expect([await read(`${queue}/size`), await read(`${queue}/total_size`)]).toEqual([{ size: 2 }, { size: 2 }]);
  const renamed = (await under.ask('PATCH', `/annotation-queues/${queue}`, { name: 'renamed' })).body;
  const queues = [await read(queue), ...(await read(`?ids=${queue}`)), ...(await read(`${second}/queues`)), renamed];
  expect(queues.map(({ total_runs }: { total_runs: number }) => total_runs)).toEqual([2, 2, 2, 2]);
  const { items } = (await under.ask('GET', `/v1/platform/annotation-queues/${queue}/items?status=needs_my_review`))
    .body as { items: { run_id: string }[] };
  expect(items.map(({ run_id }) => run_id)).toEqual([second, third]);
});

it('a queue that is full of expired runs, and of runs of deleted projects, accepts others', async () => {
  const [expired, kept] = await sendRuns();
  const deletedProject = await under.addProject();
  const deleted = await under.sendTrace(deletedProject, 1);
  const queue = await addQueue([expired, deleted.traceId]);
  await under.api.database.execute(
    `UPDATE annotation_queue_runs SET inserted_at = now() - interval '2 days' WHERE queue_id = $1 AND run_id = $2`,
    [queue, expired],
  );
  await addThreads(queue, await under.addProject(), 9_997);
  await addThreads(queue, deletedProject, 1);
  const add = (runId: string | undefined) => under.ask('POST', `/annotation-queues/${queue}/runs`, [runId]);
  await deleteProjects(under.api.services, under.workspaceId, [deletedProject]);
  const added = [];
  for (let n = 0; n < 4; n++) {
    const { traceId } = await under.sendTrace(await under.addProject(), 1);
    added.push((await add(traceId)).status);
  }
  expect(added).toEqual([200, 200, 200, 422]);
  expect(await countRows(queue)).toBe(10_000);
  expect((await add(kept)).status).toBe(422);
});

it('a full queue keeps runs that ClickHouse does not have yet', async () => {
  const { traceId } = await under.sendTrace(await under.addProject(), 1);
  const queue = await addQueue([]);
  await under.api.database.execute(
    `INSERT INTO annotation_queue_runs (id, queue_id, run_id)
     SELECT gen_random_uuid(), $1, gen_random_uuid() FROM generate_series(1, 10000)`,
    [queue],
  );
  expect((await under.ask('POST', `/annotation-queues/${queue}/runs`, [traceId])).status).toBe(422);
  expect(await countRows(queue)).toBe(10_000);
});

it('deleting a trace removes its runs from all queues', async () => {
  const projectId = await under.addProject();
  const [going, staying] = [await under.sendTrace(projectId, 1), await under.sendTrace(projectId, 1)];
  const queues = [
    await addQueue([going.childId, staying.childId, staying.traceId]),
    await addQueue([going.traceId, going.childId]),
  ];
  await under.ask('POST', '/runs/delete', { session_id: projectId, trace_ids: [going.traceId] });
  await under.change();
  const totals = await Promise.all(queues.map(async (queue) => (await read(queue)).total_runs));
  expect([totals, await Promise.all(queues.map(countRows))]).toEqual([
    [2, 0],
    [2, 0],
  ]);
});

it('deleting a project removes its runs and threads from all queues', async () => {
  const [going, staying] = [await under.addProject(), await under.addProject()];
  const [goingTrace, stayingTrace] = [await under.sendTrace(going, 1), await under.sendTrace(staying, 1)];
  const queue = await addQueue([goingTrace.childId, goingTrace.traceId, stayingTrace.traceId]);
  for (const projectId of [going, staying]) await addThreads(queue, projectId, 1);
  await deleteProjects(under.api.services, under.workspaceId, [going]);
  const { services } = under.api;
  await deleteProjectRuns({ ...services, ...services.system }, { workspaceId: under.workspaceId, projectId: going });
  expect([(await read(queue)).total_runs, await countRows(queue)]).toEqual([1, 2]);
});
