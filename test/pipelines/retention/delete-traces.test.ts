/** Which traces a deletion covers, and what it leaves, over its two executions. */
import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { storeAttachmentSets } from '../../../pipelines/attachments/attachment-sets.ts';
import { forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';
import { openRetention, type SentTrace } from './retention-under-test.ts';

const under = forSuite(() => openRetention());

async function requestDeletion(projectId: string, traces: object): Promise<void> {
  expect((await under.ask('POST', '/runs/delete', { session_id: projectId, ...traces })).status).toBe(200);
}

it('by metadata covers traces that were accepted before the request, also if the run with the metadata comes later', async () => {
  const [projectId, customer] = [await under.addProject(), { customer: 'acme' }];
  const before = await under.sendTrace(projectId, 1);
  await requestDeletion(projectId, { metadata: customer });
  await under.change();
  const isOld = `SELECT FROM trace_changes WHERE session_id = $1 AND requested_at < now() - interval '2 seconds'`;
  await until('the request to be older than the tolerance for clocks', async () => {
    return (await under.api.database.query(isOld, [projectId])).length > 0;
  });
  const late = await under.sendLateChild(before, 1, customer);
  const after = await under.sendTrace(projectId, 1, customer);
  await under.change('again');
  expect(await under.contents({ ...before, childId: late })).toBe(0);
  expect(await under.readRuns(after.traceId)).toHaveLength(2);
});

it.each([
  ['an escape of a lone surrogate', '"\\ud800"'],
  ['an integer beyond 64 bits', '123456789012345678901234567890'],
])('by metadata finds runs whose extra contains %s', async (_, value) => {
  const [projectId, id] = [await under.addProject(), randomUUID()];
  const { statusCode } = await under.api.server.inject({
    method: 'POST',
    url: '/runs',
    headers: { 'x-api-key': under.key, 'content-type': 'application/json' },
    payload: `{"id":"${id}","session_id":"${projectId}","name":"run","run_type":"chain",
      "start_time":"${new Date().toISOString()}","extra":{"other":${value},"metadata":{"customer":"acme"}}}`,
  });
  expect(statusCode).toBe(202);
  await under.api.settled();
  expect(await under.readRuns(id)).toEqual([id]);
  await requestDeletion(projectId, { metadata: { customer: 'acme' } });
  await under.change();
  expect(await under.readRuns(id)).toEqual([]);
});

it('by metadata accepts keys with line breaks, and only texts as values', async () => {
  const [projectId, key] = [await under.addProject(), 'cust\r\nomer'];
  const gone = await under.sendTrace(projectId, 1, { [key]: 'acme' });
  for (const metadata of [{ [key]: {} }, { [key]: 7 }, { 'k\0': 'acme' }, { ['k'.repeat(1_001)]: 'acme' }]) {
    const { status, body } = await under.ask('POST', '/runs/delete', { session_id: projectId, metadata });
    expect([status, body.code, body.detail]).toEqual([422, 'INVALID_REQUEST', [expect.objectContaining({})]]);
  }
  await requestDeletion(projectId, { metadata: { [key]: 'acme' } });
  await under.change();
  expect(await under.contents(gone)).toBe(0);
});

it('by metadata with an empty value leaves runs without the key', async () => {
  const projectId = await under.addProject();
  const empty = await under.sendTrace(projectId, 1, { customer: '' });
  const stay = [await under.sendTrace(projectId, 1), await under.sendTrace(projectId, 1, { customer: 7 })];
  await requestDeletion(projectId, { metadata: { customer: '' } });
  await under.change();
  expect(await under.contents(empty)).toBe(0);
  for (const { traceId } of stay) expect(await under.readRuns(traceId)).toHaveLength(2);
});

it.each([
  ['by id', ({ traceId }: SentTrace) => ({ trace_ids: [traceId] })],
  ['by metadata', () => ({ metadata: { customer: 'acme' } })],
])('%s covers traces that waited in the log for longer than an hour', async (_, selectTraces) => {
  const trace = { projectId: await under.addProject(), traceId: randomUUID(), childId: randomUUID() };
  await requestDeletion(trace.projectId, selectTraces(trace));
  await under.change(undefined, 'behind');
  await under.change('again', 'behind');
  // The same state as if the trace had been accepted before the request.
  await under.api.database.execute(
    `UPDATE trace_changes SET requested_at = now() + interval '1 hour' WHERE session_id = $1`,
    [trace.projectId],
  );
  await under.storeTrace(trace, 1, { customer: 'acme' });
  await under.change('again');
  expect(await under.contents(trace)).toBe(0);
  const late = await under.sendLateChild(trace, 1);
  await under.change('again');
  expect(await under.contents({ ...trace, childId: late })).toBe(0);
  expect(await under.api.database.query('SELECT FROM trace_changes WHERE session_id = $1', [trace.projectId])).toEqual(
    [],
  );
});

it('covers attachments that arrive after their runs were deleted', async () => {
  const trace = await under.sendTrace(await under.addProject(), 1);
  await requestDeletion(trace.projectId, { trace_ids: [trace.traceId] });
  await under.change();
  for (const runId of [trace.traceId, trace.childId]) {
    await under.command(
      `INSERT INTO attachments (version, tenant_id, run_id, name, content)
       SELECT 1, '${under.workspaceId}', '${runId}', 'late', 'content of the attachment'`,
    );
  }
  await under.change('again');
  expect(await under.contents(trace)).toBe(0);
});

it('leaves attachments of examples that are stored under the id of a run of the trace', async () => {
  const trace = await under.sendTrace(await under.addProject(), 1);
  const content = Buffer.from('content of the example');
  const ofExamples = [trace.traceId, trace.childId].map((set) => ({
    set,
    name: 'file',
    mimeType: 'text/plain',
    content,
  }));
  await storeAttachmentSets(under.api.services.clickhouse, under.workspaceId, ofExamples);
  await requestDeletion(trace.projectId, { trace_ids: [trace.traceId] });
  for (let execution = 0; execution < 2; execution++) await under.change('again');
  const sql = `SELECT name FROM attachments WHERE run_id IN ('${trace.traceId}', '${trace.childId}')`;
  expect(await under.sql(sql)).toEqual([{ name: 'file' }, { name: 'file' }]);
});

it('in a project that a trace was moved from leaves the trace', async () => {
  const trace = await under.sendTrace(await under.addProject(), 0);
  const otherProject = await under.addProject();
  await under.command(
    `INSERT INTO trace_locations SELECT * REPLACE ('${otherProject}' AS session_id, version + 1 AS version)
     FROM trace_locations WHERE trace_id = '${trace.traceId}'`,
  );
  await requestDeletion(otherProject, { trace_ids: [trace.traceId] });
  await under.change();
  expect(await under.sql(`SELECT trace_id FROM trace_marks WHERE trace_id = '${trace.traceId}'`)).toEqual([]);
  expect((await under.ask('PATCH', `/runs/${trace.childId}`, { outputs: { done: true } })).status).toBe(202);
  await under.api.settled();
  expect((await under.ask('GET', `/runs/${trace.childId}`)).body).toMatchObject({ outputs: { done: true } });
});

it('deletes the locations the second time, also if others are deleted the first time in the same round', async () => {
  const countLocations = async (traceId: string) =>
    (await under.sql(`SELECT DISTINCT session_id FROM trace_locations WHERE trace_id = '${traceId}'`)).length;
  const projectId = await under.addProject();
  const [first, second] = [await under.sendTrace(projectId, 1), await under.sendTrace(projectId, 1)];
  await requestDeletion(projectId, { trace_ids: [first.traceId] });
  await under.change();
  await requestDeletion(projectId, { trace_ids: [second.traceId] });
  await under.change('again');
  expect([await countLocations(first.traceId), await countLocations(second.traceId)]).toEqual([0, 1]);
  await under.change('again');
  expect(await countLocations(second.traceId)).toBe(0);
});
