import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { addExport } from '../../add-export.ts';
import { type ApiUnderTest, addOrganization, type OrganizationUnderTest, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
let org: OrganizationUnderTest;
let projectId: string;
let destinationId: string;
const ask: ApiUnderTest['ask'] = (...request) => api.ask(...request);

beforeAll(async () => {
  Object.assign(api.services.exports, { jobs: { enqueue: async () => undefined } });
  org = await addOrganization(api.database, 'exports');
  projectId = (await ask(org.adminKey, 'POST', '/sessions', { name: 'p' })).body.id;
  const [workspaceId] = org.workspaceIds;
  ({ destinationId } = await addExport(api.database, { workspaceId, projectId, word: 'seeded' }));
});

describe('the runs of an export', () => {
  it('report the files written and the errors', async () => {
    const [workspaceId] = org.workspaceIds;
    const { exportId, exportRunId } = await addExport(api.database, { workspaceId, projectId, word: 'path of mine' });
    const { status, body: runs } = await ask(org.adminKey, 'GET', `/bulk-exports/${exportId}/runs`);
    const folder = `path of mine/export_id=${exportId}/tenant_id=${workspaceId}/session_id=${projectId}`;
    expect(status).toBe(200);
    expect(runs).toMatchObject([
      {
        id: exportRunId,
        bulk_export_id: exportId,
        status: 'RUNNING',
        start_time: '2026-03-05T00:00:00.000000+00:00',
        end_time: '2026-03-06T00:00:00.000000+00:00',
        retry_number: 0,
        errors: { retry_0: 'path of mine' },
        rows_written: 7,
        late_runs: null,
        finished_at: null,
        metadata: {
          prefix: folder,
          execution_backend: 'clickhouse',
          result: {
            rows_written: 7,
            file_count: 1,
            exported_files: ['path of mine/file.parquet'],
            export_path: `${folder}/runs/year=2026/month=03/day=05`,
            latest_cursor: null,
            pending_upload: null,
          },
        },
      },
    ]);
    const one = await ask(org.adminKey, 'GET', `/bulk-exports/${exportId}/runs/${exportRunId}`);
    expect(one).toMatchObject({ status: 200, body: runs[0] });
    const files = await ask(org.adminKey, 'GET', `/bulk-exports/${exportId}/runs/${exportRunId}/files`);
    expect(files.body).toEqual([
      { part: 1, path: 'path of mine/file.parquet', rows: 7, bytes: 70, sha256: 'ab', created_at: expect.any(String) },
    ]);
    expect((await ask(org.adminKey, 'GET', `/bulk-exports/${exportId}/runs?offset=1`)).body).toEqual([]);
    for (const url of [
      `/bulk-exports/${randomUUID()}/runs`,
      `/bulk-exports/${exportId}/runs/${randomUUID()}`,
      `/bulk-exports/${randomUUID()}/runs/${exportRunId}`,
      `/bulk-exports/${exportId}/runs/${randomUUID()}/files`,
    ]) {
      expect((await ask(org.adminKey, 'GET', url)).status).toBe(404);
    }
  });

  it('have, as their export, every field of the published API description', async () => {
    const [workspaceId] = org.workspaceIds;
    const { exportId, exportRunId } = await addExport(api.database, { workspaceId, projectId, word: 'described' });
    const last = { startTimeMicros: 1_772_668_800_000_001, traceId: exportId, runId: exportRunId };
    const pending = { part: 2, after: null, last, rows: 3, bytes: 30, path: 'p/2.parquet', uploadId: 'u' };
    await api.database.execute(
      'UPDATE bulk_export_runs SET fence = 1, latest_cursor = $2, pending_upload = $3 WHERE id = $1',
      [exportRunId, last, pending],
    );
    const { body: found } = await ask(org.adminKey, 'GET', `/bulk-exports/${exportId}`);
    const { body: run } = await ask(org.adminKey, 'GET', `/bulk-exports/${exportId}/runs/${exportRunId}`);
    const cursor = `2026-03-05T00:00:00.000001+00:00 ${exportId} ${exportRunId}`;
    expect(run.metadata.result).toMatchObject({
      latest_cursor: cursor,
      pending_upload: { target_cursor: cursor, file_path: 'p/2.parquet', rows_count: 3 },
    });
    for (const [answer, fields] of [
      [
        found,
        `bulk_export_destination_id session_id start_time end_time filter format format_version compression interval_hours
         export_fields id tenant_id status created_at updated_at finished_at source_bulk_export_id`,
      ],
      [
        run,
        'bulk_export_id metadata id status retry_number errors created_at updated_at finished_at start_time end_time',
      ],
      [run.metadata, 'prefix start_time end_time execution_backend result'],
      [run.metadata.result, 'rows_written exported_files export_path latest_cursor pending_upload'],
      [run.metadata.result.pending_upload, 'target_cursor file_path rows_count'],
    ]) {
      expect(Object.keys(answer)).toEqual(expect.arrayContaining(fields.split(/\s+/)));
    }
  });

  it('are all in one response, also those of the longest range', async () => {
    const [workspaceId] = org.workspaceIds;
    const { exportId } = await addExport(api.database, { workspaceId, projectId, word: 'long' });
    await api.database.execute(
      `INSERT INTO bulk_export_runs (id, bulk_export_id, workspace_id, start_time, end_time, status)
       SELECT gen_random_uuid(), $1, $2, day, day + interval '1 day', 'CREATED'
       FROM generate_series(timestamptz '2026-03-06', timestamptz '2026-03-05' + interval '3660 days', interval '1 day') AS day`,
      [exportId, workspaceId],
    );
    expect((await ask(org.adminKey, 'GET', `/bulk-exports/${exportId}/runs`)).body).toHaveLength(3_661);
  });

  it('list a limited number of paths in one response', async () => {
    const [workspaceId] = org.workspaceIds;
    const { exportId, exportRunId } = await addExport(api.database, { workspaceId, projectId, word: 'many' });
    const addFiles = (runId: string, count: number) =>
      api.database.execute(
        `INSERT INTO bulk_export_files (bulk_export_run_id, part, path, rows, bytes, sha256)
         SELECT $1, part, 'p' || part, 1, 1, 's' FROM generate_series(2, $2::int) AS part`,
        [runId, count],
      );
    const [next] = await api.database.query<{ id: string }>(
      `INSERT INTO bulk_export_runs (id, bulk_export_id, workspace_id, start_time, end_time, status, fence, next_attempt_at,
         created_at, updated_at)
       SELECT gen_random_uuid(), bulk_export_id, workspace_id, end_time, end_time + interval '1 day', status, 1,
         next_attempt_at, created_at, updated_at FROM bulk_export_runs WHERE id = $1 RETURNING id`,
      [exportRunId],
    );
    await addFiles(exportRunId, 49_990);
    await addFiles(next?.id ?? '', 60_000);
    const results = async (path: string) =>
      [(await ask(org.adminKey, 'GET', path)).body].flat().map(({ metadata: { result } }) => ({
        count: result.file_count,
        listed: result.exported_files.length,
        first: result.exported_files.slice(1, 3),
      }));
    expect(await results(`/bulk-exports/${exportId}/runs`)).toEqual([
      { count: 49_990, listed: 49_990, first: ['p2', 'p3'] },
      { count: 59_999, listed: 10, first: ['p3', 'p4'] },
    ]);
    expect(await results(`/bulk-exports/${exportId}/runs/${next?.id}`)).toMatchObject([
      { count: 59_999, listed: 50_000 },
    ]);
  });

  it('can be listed by their schedule', async () => {
    const [workspaceId] = org.workspaceIds;
    const { body: schedule } = await ask(org.adminKey, 'POST', '/bulk-exports', {
      bulk_export_destination_id: destinationId,
      session_id: projectId,
      start_time: '2026-03-01T00:00:00Z',
      interval_hours: 24,
    });
    const { exportId, exportRunId } = await addExport(api.database, { workspaceId, projectId, word: 'spawned' });
    await api.database.execute('UPDATE bulk_exports SET source_bulk_export_id = $2 WHERE id = $1', [
      exportId,
      schedule.id,
    ]);
    const found = await ask(org.adminKey, 'GET', `/bulk-exports/runs?source_bulk_export_id=${schedule.id}`);
    expect(found).toMatchObject({ status: 200, body: [{ id: exportRunId, bulk_export_id: exportId }] });
    expect((await ask(org.adminKey, 'GET', '/bulk-exports/runs')).status).toBe(422);
    expect((await ask(org.adminKey, 'GET', `/bulk-exports/runs?source_bulk_export_id=${randomUUID()}`)).status).toBe(
      404,
    );
  });
});
