import { afterAll, beforeAll, expect, it } from 'vitest';
import { openDatabase } from '../../infra/postgres/pool.ts';
import { createDataset } from '../../pipelines/datasets/write-dataset.ts';
import { createExport } from '../../pipelines/exports/create-cancel.ts';
import { createDestination } from '../../pipelines/exports/destinations/write-destination.ts';
import { createRepo } from '../../pipelines/prompts/write-repo.ts';
import { openFaultProxy } from '../crash/fault-proxy.ts';
import { forSuite } from '../for-suite.ts';
import { logger } from '../silent-logger.ts';
import { day, type ExportsUnderTest, openExportsUnderTest } from './exports/exports-under-test.ts';
import { deriveUuid } from './runs/run-events.ts';

/** The connection to Postgres breaks after a commit, before its answer arrives. A client would repeat a request that fails. */

let under: ExportsUnderTest;
beforeAll(async () => {
  under = await openExportsUnderTest();
});
afterAll(() => under?.close());
const proxy = forSuite(() => {
  const { hostname: host, port } = new URL(under.stores.databaseUrl);
  return openFaultProxy([{ host, port: Number(port) }]);
});
const database = forSuite(() => {
  const url = new URL(under.stores.databaseUrl);
  url.port = String(proxy.ports[0]);
  return openDatabase({ url: url.href, logger, timeoutMs: 10_000 });
});

/** Creates something while the answer to its commit is lost. Returns it, and the ids of all rows of the table. */
async function create(table: string, work: () => Promise<{ readonly id: string }>) {
  const [before] = await under.database.query<{ rows: number }>(`SELECT count(*) AS rows FROM ${table}`);
  const lost = proxy
    .hold('answered', (message) => message.includes('COMMIT'))
    .then(() => {
      proxy.away(true);
      setTimeout(() => proxy.away(false), 100);
    });
  const created = await work();
  await lost;
  const rows = await under.database.query<{ id: string }>(`SELECT id FROM ${table}`);
  expect(rows).toHaveLength((before?.rows ?? 0) + 1);
  expect(rows.map(({ id }) => id)).toContain(created.id);
  return created;
}

it('a dataset is created once', async () => {
  const dataset = { name: 'questions', dataType: 'kv' } as const;
  expect(await create('datasets', () => createDataset(database, under.workspaceId, dataset))).toMatchObject({
    name: 'questions',
  });
});

it('a prompt is created once', async () => {
  const caller = { workspaceId: under.workspaceId, userId: deriveUuid('user') } as Parameters<typeof createRepo>[1];
  const repo = { handle: 'greeting', repoType: 'prompt', isPublic: false } as const;
  expect(await create('repos', () => createRepo(database, caller, repo))).toMatchObject({ repo_handle: 'greeting' });
});

it('an export and its destination are created once', async () => {
  const destinations = { ...under.destinations, database };
  const { id: destinationId } = await create('bulk_export_destinations', () =>
    createDestination(destinations, under.workspaceId, {
      type: 'local',
      displayName: 'bucket',
      config: { prefix: 'exports' },
    }),
  );
  const owner = { workspaceId: under.workspaceId, keyId: deriveUuid('key') };
  const request = {
    destinationId,
    projectId: under.projectId,
    startTimeMicros: day('2026-03-05'),
    endTimeMicros: day('2026-03-06'),
    intervalHours: undefined,
    formatVersion: 'v2_beta',
    compression: 'zstandard',
    exportFields: ['id'],
  } as const;
  const { id } = await create('bulk_exports', () => createExport({ ...under.deps, database }, owner, request));
  expect(under.jobs.filter(({ payload }) => payload.export_id === id)).toHaveLength(1);
});
