import { randomUUID } from 'node:crypto';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { exportFields } from '../../../../schemas/parquet/run-columns.ts';
import { forSuite } from '../../../for-suite.ts';
import { addExport } from '../../add-export.ts';
import { type ApiUnderTest, addKey, addOrganization, type OrganizationUnderTest, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
let org: OrganizationUnderTest;
let projectId: string;
let destinationId: string;
const enqueued: unknown[] = [];
const ask: ApiUnderTest['ask'] = (...request) => api.ask(...request);

beforeAll(async () => {
  Object.assign(api.services.exports, {
    jobs: { enqueue: async (...job: unknown[]) => void enqueued.push(job) },
  });
  org = await addOrganization(api.database, 'exports');
  projectId = (await ask(org.adminKey, 'POST', '/sessions', { name: 'p' })).body.id;
  const [workspaceId] = org.workspaceIds;
  ({ destinationId } = await addExport(api.database, { workspaceId, projectId, word: 'seeded' }));
});
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
