import { randomUUID } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import type { ExportWorkerDeps } from '../../../pipelines/exports/export-deps.ts';
import { LiveAttempts } from '../../../pipelines/exports/live-attempts.ts';
import { FairAttempts, openWorkFolders } from '../../../pipelines/exports/worker.ts';
import { addOrganization } from '../../api/start-api.ts';
import { until } from '../../infra/until.ts';
import { day, type ExportsUnderTest, openExportsUnderTest } from './exports-under-test.ts';

let shop: ExportsUnderTest;
afterEach(() => shop?.close());

const at = day('2026-03-05');
const dayMicros = 86_400_000_000;

/** Creates a RUNNING export of another organisation with one run a day; otherwise it is like the given export. */
async function addForeignExport(name: string, exportId: string): Promise<string> {
  const { workspaceIds } = await addOrganization(shop.database, name);
  const [id, projectId] = [randomUUID(), randomUUID()];
  await shop.database.execute(`INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, 'p')`, [
    projectId,
    workspaceIds[0],
  ]);
  await shop.database.execute(
    `INSERT INTO bulk_exports SELECT (jsonb_populate_record(e, jsonb_build_object('id', $2::uuid, 'workspace_id', $3::uuid,
       'project_id', $4::uuid, 'created_at', now()))).* FROM bulk_exports AS e WHERE id = $1`,
    [exportId, id, workspaceIds[0], projectId],
  );
  await shop.database.execute(
    `INSERT INTO bulk_export_runs SELECT (jsonb_populate_record(r, jsonb_build_object('id', gen_random_uuid(),
       'bulk_export_id', $2::uuid, 'workspace_id', $3::uuid))).* FROM bulk_export_runs AS r WHERE bulk_export_id = $1`,
    [exportId, id, workspaceIds[0]],
  );
  return id;
}

/** Opens attempts that last until the test ends them, and records the workspace of each attempt in start order. */
async function openAttempts(concurrency: number) {
  const began: string[] = [];
  const ends: (() => void)[] = [];
  const openSource: ExportWorkerDeps['openSource'] = ({ tenantId: workspaceId }) => ({
    count: async () => {
      began.push(workspaceId);
      await new Promise<void>((resolve) => ends.push(resolve));
      return { members: 0, late: 0 };
    },
    find: async () => undefined,
    read: async () => undefined,
    encode: async () => ({ path: '', rows: 0, bytes: 0 }),
    close: () => undefined,
  });
  const attempts = new LiveAttempts(shop.database, shop.limits, shop.logger);
  const folder = join(shop.workRoot, 'fair');
  await mkdir(folder, { recursive: true });
  const folders = await openWorkFolders(folder);
  const openStore: ExportWorkerDeps['openStore'] = () =>
    shop.openStore({ workspaceId: shop.workspaceId, destinationId: shop.destinationId });
  const fair = new FairAttempts(
    { ...shop.deps, now: undefined, openSource, openStore, attempts, folders },
    concurrency,
  );
  return { fair, began, ends, stop: () => attempts.stop() };
}

/** Ends the attempts that {@link openAttempts} has started, one after another. */
async function endOneRun(ends: readonly (() => void)[], count: number): Promise<void> {
  // Each run is counted twice: when it starts and when it ends.
  await until('a run to start', () => ends.length >= count * 2 - 1);
  ends[count * 2 - 2]?.();
  await until('a run to be counted again', () => ends.length >= count * 2);
  ends[count * 2 - 1]?.();
}

it('many or long runs of one organisation do not delay the first run of another', async () => {
  shop = await openExportsUnderTest();
  const flood = await shop.create({ endTimeMicros: at + 20 * dayMicros });
  await shop.start(flood.id);
  const { fair, began, ends, stop } = await openAttempts(2);
  const jobs = Array.from({ length: fair.maxJobs }, () => fair.attemptNext());
  await until('two attempts to start', () => began.length === 2);
  const foreign = await addForeignExport('quiet', flood.id);
  await until('the run of the other organisation to start', () => began.length === 3);
  expect(began.slice(0, 2)).toEqual([shop.workspaceId, shop.workspaceId]);
  const [{ workspaceId: other } = { workspaceId: '' }] = await shop.database.query<{ workspaceId: string }>(
    'SELECT workspace_id AS "workspaceId" FROM bulk_exports WHERE id = $1',
    [foreign],
  );
  expect(began[2]).toBe(other);
  // Both organisations have due runs: the one with fewer running attempts is next.
  ends[0]?.();
  jobs.push(fair.attemptNext());
  await until('the next attempt to start', () => began.length === 4 || ends.length === 4);
  expect(began.length).toBe(4);
  stop();
  for (const end of ends) end();
  let over = false;
  void Promise.all(jobs).then(() => {
    over = true;
  });
  await until('all attempts to end', () => {
    for (const end of ends) end();
    return over;
  });
});

it('organisations take turns with a single attempt slot', async () => {
  shop = await openExportsUnderTest();
  const flood = await shop.create({ endTimeMicros: at + 5 * dayMicros });
  await shop.start(flood.id);
  await addForeignExport('second', flood.id);
  const { fair, began, ends, stop } = await openAttempts(1);
  for (let count = 1; count <= 6; count += 1) {
    const job = fair.attemptNext();
    await endOneRun(ends, count);
    await job;
  }
  const turns = began.filter((_, index) => index % 2 === 0);
  expect(new Set(turns.slice(0, 2)).size).toBe(2);
  expect(new Set(turns.slice(2, 4)).size).toBe(2);
  expect(new Set(turns.slice(4, 6)).size).toBe(2);
  stop();
});

it('exports of one organisation take turns, so that a large one does not delay a small one', async () => {
  shop = await openExportsUnderTest();
  const exportIds: string[] = [];
  for (const days of [20, 2, 2]) {
    const { id } = await shop.create({ endTimeMicros: at + days * dayMicros });
    exportIds.push(id);
    await shop.database.execute(
      `UPDATE bulk_exports SET created_at = now() - interval '1 hour' + $2 * interval '1 minute' WHERE id = $1`,
      [id, exportIds.length],
    );
    await shop.start(id);
  }
  const { fair, ends, stop } = await openAttempts(1);
  const turns: (string | undefined)[] = [];
  for (let count = 1; count <= 6; count += 1) {
    const job = fair.attemptNext();
    await until('a run to start', () => ends.length >= count * 2 - 1);
    const leased = await shop.database.query<{ of: string }>(
      'SELECT bulk_export_id AS of FROM bulk_export_runs WHERE finished_at IS NULL AND lease_until > clock_timestamp()',
    );
    turns.push(leased[0]?.of);
    await endOneRun(ends, count);
    await job;
  }
  expect(turns).toEqual([...exportIds, ...exportIds]);
  stop();
});
