import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { exportFields } from '../../../../schemas/parquet/run-columns.ts';
import { addExport } from '../../add-export.ts';
import { type ApiUnderTest, addKey, addOrganization, type OrganizationUnderTest, startApi } from '../../start-api.ts';

let api: ApiUnderTest;
let org: OrganizationUnderTest;
let projectId: string;
let destinationId: string;
const enqueued: unknown[] = [];
const ask: ApiUnderTest['ask'] = (...request) => api.ask(...request);

beforeAll(async () => {
  api = await startApi();
  Object.assign(api.services.exports, {
    jobs: { enqueue: async (...job: unknown[]) => void enqueued.push(job) },
  });
  org = await addOrganization(api.database, 'exports');
  projectId = (await ask(org.adminKey, 'POST', '/sessions', { name: 'p' })).body.id;
  const [workspaceId] = org.workspaceIds;
  ({ destinationId } = await addExport(api.database, { workspaceId, projectId, word: 'seeded' }));
});
afterAll(() => api?.close());
beforeEach(() => {
  enqueued.length = 0;
});

const body = (more: object = {}) => ({
  bulk_export_destination_id: destinationId,
  session_id: projectId,
  start_time: '2026-03-01T00:00:00Z',
  end_time: '2026-03-04T12:00:00+02:00',
  ...more,
});
const create = (more: object = {}) => ask(org.adminKey, 'POST', '/api/v1/bulk-exports', body(more));

describe('creating an export', () => {
  it('returns every field and enqueues it at once', async () => {
    const { status, body: made } = await create({ format_version: 'v2_beta', export_fields: ['id', 'name', 'id'] });
    expect(status).toBe(200);
    expect(made).toMatchObject({
      tenant_id: org.workspaceIds[0],
      bulk_export_destination_id: destinationId,
      session_id: projectId,
      start_time: '2026-03-01T00:00:00.000000+00:00',
      end_time: '2026-03-04T10:00:00.000000+00:00',
      interval_hours: null,
      format: 'Parquet',
      format_version: 'v2_beta',
      compression: 'zstandard',
      export_fields: ['id', 'name'],
      filter: null,
      status: 'CREATED',
      source_bulk_export_id: null,
      next_start_time: null,
      started_at: null,
      finished_at: null,
      progress: {
        runs_total: 0,
        runs_completed: 0,
        share_done: 0,
        rows_written: 0,
        rows_expected: null,
        bytes_written: 0,
        files: 0,
        late_runs: 0,
        retries: 0,
        rows_per_second: null,
        seconds_left: null,
      },
    });
    expect(Date.parse(made.members_until) - Date.parse(made.created_at)).toBe(1_000);
    expect(enqueued).toEqual([['coordinate-export', { export_id: made.id }, { jobId: made.id }]]);
    expect((await ask(org.adminKey, 'GET', `/bulk-exports/${made.id}`)).body).toEqual(made);
  });

  it('accepts null and empty values as absent', async () => {
    const { status, body: made } = await create({
      filter: null,
      interval_hours: null,
      format: null,
      format_version: null,
      compression: null,
      export_fields: null,
    });
    expect(status).toBe(200);
    expect(made).toMatchObject({ format_version: 'v1', compression: 'zstandard', export_fields: null });
    expect((await create({ filter: '' })).body.filter).toBe(null);
  });

  it('keeps its filter', async () => {
    const filter = 'and(eq(is_root, true), eq(feedback_key, "prompt_intent"))';
    expect((await create({ filter })).body.filter).toBe(filter);
  });

  it('accepts every field that can be exported', async () => {
    expect((await create({ export_fields: exportFields })).body.export_fields).toEqual(exportFields);
  });

  it('succeeds if the queue is unavailable: the sweep finds it', async () => {
    const { jobs } = api.services.exports;
    Object.assign(api.services.exports, { jobs: { enqueue: async () => Promise.reject(new Error('away')) } });
    const { status, body: made } = await create();
    Object.assign(api.services.exports, { jobs });
    expect(status).toBe(200);
    expect((await ask(org.adminKey, 'GET', `/bulk-exports/${made.id}`)).body.status).toBe('CREATED');
  });

  it('creates a schedule if an interval is given', async () => {
    const { status, body: made } = await create({ end_time: null, interval_hours: 168 });
    expect(status).toBe(200);
    expect(made).toMatchObject({
      status: 'RUNNING',
      interval_hours: 168,
      end_time: null,
      next_start_time: '2026-03-01T00:00:00.000000+00:00',
    });
    expect(enqueued).toEqual([]);
  });

  it.each([
    ['an invalid filter', { filter: 'eq(nam, "x")' }, 400, /character 4.*did you mean `name`/],
    ['a filter that is not a text', { filter: {} }, 422, /filter/],
    ['all experiments', { all_experiments: true }, 400, /all_experiments.*not supported yet/],
    ['no project', { session_id: undefined }, 422, /session_id/],
    ['a malformed project id', { session_id: 'x' }, 422, /session_id/],
    ['no destination', { bulk_export_destination_id: null }, 422, /bulk_export_destination_id/],
    ['no start', { start_time: undefined }, 422, /start_time/],
    ['a date that does not exist', { start_time: '2026-02-30T00:00:00Z' }, 422, /start_time/],
    ['a start before 1970', { start_time: '1969-12-31T23:00:00Z' }, 422, /start_time.*1970/],
    [
      'an end beyond the supported range',
      { end_time: '2270-01-01T00:00:00Z', start_time: '2269-12-01T00:00:00Z' },
      422,
      /2260/,
    ],
    ['no end', { end_time: undefined }, 422, /end_time.*required/],
    ['an end and an interval', { interval_hours: 1 }, 422, /end_time.*absent/],
    ['an end equal to the start', { end_time: '2026-03-01T00:00:00Z' }, 422, /later than start_time/],
    ['an end before the start', { end_time: '2026-02-01T00:00:00Z' }, 422, /later than start_time/],
    ['more days than allowed', { start_time: '2000-01-01T00:00:00Z' }, 422, /at most 3660 days after start_time/],
    ['an interval of 0', { end_time: undefined, interval_hours: 0 }, 422, /interval_hours/],
    ['an interval of 169', { end_time: undefined, interval_hours: 169 }, 422, /interval_hours/],
    ['an interval of 1.5', { end_time: undefined, interval_hours: 1.5 }, 422, /interval_hours/],
    ['an unknown field', { export_fields: ['id', 'nmae', 'foo'] }, 422, /'nmae', 'foo'/],
    [
      'a schedule that starts too long ago',
      { end_time: undefined, interval_hours: 1, start_time: '1970-01-01T00:00:00Z' },
      422,
      /start_time.*3660 days ago/,
    ],
    [
      'many unknown fields',
      { export_fields: ['a', 'b', 'c', 'd', 'e', 'f', 'g'] },
      422,
      /'a', 'b', 'c', 'd', 'e' and 2 more"/,
    ],
    ['a field name that is too long', { export_fields: ['x'.repeat(257)] }, 422, /256 characters/],
    ['an empty list of fields', { export_fields: [] }, 422, /at least one/],
    ['a field that is not a string', { export_fields: [1] }, 422, /export_fields/],
    ['an unsupported format', { format: 'CSV' }, 422, /format/],
    ['an unsupported format version', { format_version: 'v3' }, 422, /format_version/],
    ['an unsupported compression', { compression: 'lz4' }, 422, /compression/],
    ['a missing project', { session_id: randomUUID() }, 404, /Session/],
    ['a missing destination', { bulk_export_destination_id: randomUUID() }, 404, /destination/],
  ])('is rejected with %s', async (_name, more, status, message) => {
    const answer = await create(more);
    expect([answer.status, JSON.stringify(answer.body)]).toEqual([status, expect.stringMatching(message)]);
    expect(enqueued).toEqual([]);
  });

  it('requires the permission to manage', async () => {
    const reader = await addKey({
      database: api.database,
      organizationId: org.id,
      userId: org.userId,
      defaultWorkspaceId: org.workspaceIds[0],
      permissions: ['bulk-exports:read'],
    });
    expect((await ask(reader, 'POST', '/bulk-exports', body())).status).toBe(403);
    expect((await ask(reader, 'GET', '/bulk-exports')).status).toBe(200);
  });
});

describe('listing exports', () => {
  it('is newest first, with pages and filters', async () => {
    const all = (await ask(org.adminKey, 'GET', '/bulk-exports')).body as {
      id: string;
      status: string;
      created_at: string;
    }[];
    expect(all.length).toBeGreaterThan(5);
    expect(all.map(({ created_at }) => created_at)).toEqual(
      [...all.map(({ created_at }) => created_at)].sort().reverse(),
    );
    const page = (await ask(org.adminKey, 'GET', '/bulk-exports?limit=2&offset=1')).body as typeof all;
    expect(page.map(({ id }) => id)).toEqual(all.slice(1, 3).map(({ id }) => id));
    const ids = async (query: string) =>
      ((await ask(org.adminKey, 'GET', `/bulk-exports?${query}`)).body as typeof all).map(({ id }) => id);
    const running = all.filter(({ status }) => status === 'RUNNING').map(({ id }) => id);
    expect(await ids('status=RUNNING')).toEqual(running);
    expect(await ids('status=RUNNING&status=CREATED')).toEqual(all.map(({ id }) => id));
    expect(await ids('scheduled=true')).toHaveLength(1);
    expect(await ids(`session_id=${randomUUID()}`)).toEqual([]);
    expect(await ids(`bulk_export_destination_id=${destinationId}&session_id=${projectId}`)).toHaveLength(all.length);
    expect(await ids(`source_bulk_export_id=${randomUUID()}`)).toEqual([]);
  });

  it('returns all exports without a page', async () => {
    const { workspaceIds, workspaceKeys } = await addOrganization(api.database, 'many exports');
    const askOther = (method: 'GET' | 'POST', url: string, more?: object) => ask(workspaceKeys[0], method, url, more);
    const { id: session_id } = (await askOther('POST', '/sessions', { name: 'p' })).body;
    const existing = await addExport(api.database, { workspaceId: workspaceIds[0], projectId: session_id, word: 'w' });
    const more = { session_id, bulk_export_destination_id: existing.destinationId };
    for (let n = 0; n < 101; n++) expect((await askOther('POST', '/bulk-exports', body(more))).status).toBe(200);
    expect((await askOther('GET', '/bulk-exports')).body).toHaveLength(102);
    expect((await askOther('GET', '/bulk-exports?limit=100&offset=100')).body).toHaveLength(2);
  });

  it.each(['limit=0', 'limit=1001', 'offset=-1', 'status=DONE', 'session_id=x', 'scheduled=maybe'])(
    'rejects %s',
    async (query) => {
      expect((await ask(org.adminKey, 'GET', `/bulk-exports?${query}`)).status).toBe(422);
    },
  );
});

describe('cancelling', () => {
  it.each([[{ status: 'Cancelled' }], [{ status: 'CANCELLED' }], [{ status: 'cancelled' }], [{}]])(
    'accepts %j, and a repeated cancel changes nothing',
    async (change) => {
      const { body: made } = await create();
      for (let n = 0; n < 2; n++) {
        const answer = await ask(org.adminKey, 'PATCH', `/bulk-exports/${made.id}`, change);
        expect(answer).toMatchObject({
          status: 200,
          body: { id: made.id, status: 'CANCELLED', finished_at: expect.any(String) },
        });
      }
    },
  );

  it('rejects other statuses, foreign exports and finished exports', async () => {
    const { body: made } = await create();
    for (const status of ['Running', '', 'Cancelled ', null, 7]) {
      expect((await ask(org.adminKey, 'PATCH', `/bulk-exports/${made.id}`, { status })).status).toBe(422);
    }
    expect((await ask(org.adminKey, 'PATCH', `/bulk-exports/${randomUUID()}`, {})).status).toBe(404);
    expect((await ask(org.workspaceKeys[1], 'PATCH', `/bulk-exports/${made.id}`, {})).status).toBe(404);
    await api.database.execute(`UPDATE bulk_exports SET status = 'COMPLETED', finished_at = now() WHERE id = $1`, [
      made.id,
    ]);
    expect(await ask(org.adminKey, 'PATCH', `/bulk-exports/${made.id}`, {})).toMatchObject({
      status: 409,
      body: { detail: expect.stringContaining('COMPLETED') },
    });
  });
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

  it('are all in one response, however long the range is', async () => {
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
    const { body: schedule } = await create({ end_time: null, interval_hours: 24 });
    const [workspaceId] = org.workspaceIds;
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
