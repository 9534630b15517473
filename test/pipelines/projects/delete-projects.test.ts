import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { storeAttachmentSets } from '../../../pipelines/attachments/attachment-sets.ts';
import { readAttachment } from '../../../pipelines/attachments/read-attachment.ts';
import { toFeedbackMessage } from '../../../pipelines/feedback/feedback-event.ts';
import {
  type DeletedProject,
  deleteProjectRuns,
  deleteProjects,
  isSecondPurge,
  requeueDeletions,
} from '../../../pipelines/projects/delete-projects.ts';
import { createProject } from '../../../pipelines/projects/write-project.ts';
import { attachmentEvents, feedbackEvents, runEvents, type Topic } from '../../../schemas/topics.ts';
import { addOrganization, startApi } from '../../api/start-api.ts';
import { forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

async function projectWithRun(): Promise<DeletedProject> {
  const workspaceId = acme.workspaceIds[0];
  const { id: projectId } = await createProject(
    api.database,
    workspaceId,
    { name: randomUUID() },
    { upsert: false, maxProjects: 1_000 },
  );
  await sendRun(projectId);
  return { workspaceId, projectId };
}

async function sendRun(projectId: string, more: object = {}): Promise<void> {
  const answer = await api.server.inject({
    method: 'POST',
    url: '/runs',
    headers: { 'x-api-key': acme.workspaceKeys[0] },
    payload: {
      id: randomUUID(),
      name: 'run',
      run_type: 'chain',
      start_time: new Date().toISOString(),
      session_id: projectId,
      ...more,
    },
  });
  expect(answer.statusCode).toBe(202);
  await api.settled();
}

/** Stores a run whose root is not stored. Returns the ids of the project, its runs and their traces. */
async function addRunWithoutRoot({ projectId }: DeletedProject): Promise<string[]> {
  const [runId, traceId] = [randomUUID(), randomUUID()];
  await sendRun(projectId, { id: runId, trace_id: traceId, parent_run_id: traceId });
  const stored = await api.services.clickhouse.query<{ ids: string[] }>({
    name: 'test',
    sql: `SELECT [id, trace_id] AS ids FROM runs WHERE session_id = '${projectId}'`,
  });
  const ids = new Set(stored.flatMap(({ ids }) => ids));
  expect(ids.size).toBe(3);
  return [projectId, ...ids];
}

async function readRunId({ projectId }: DeletedProject): Promise<string> {
  const [row] = await api.services.clickhouse.query<{ id: string }>({
    name: 'test',
    sql: `SELECT id FROM runs WHERE session_id = '${projectId}'`,
  });
  return row?.id ?? '';
}

/** Publishes an attachment and feedback of a run. Neither names the project. */
async function publishDetails(runId: string): Promise<void> {
  const { log } = api.services.accept;
  const [tenantId] = acme.workspaceIds;
  const by = { workspaceId: tenantId, userId: acme.userId, keyId: acme.userId };
  const attachment = { runId, name: 'notes', mimeType: 'text/plain', content: Buffer.from('content') };
  const options = { log, config: api.services.config };
  await log.publish(attachmentEvents, [{ ...readAttachment(by, attachment, options), headers: {} }]);
  const nowMicros = Date.now() * 1_000;
  const at = { receivedAtMicros: nowMicros, createdAtMicros: nowMicros, modifiedAtMicros: nowMicros };
  const feedback = { tenantId, userId: acme.userId, runId, id: randomUUID(), key: 'late', sourceType: 'api', ...at };
  await log.publish(feedbackEvents, [toFeedbackMessage(feedback, log, api.services.config)]);
}

const purge = (project: DeletedProject) => deleteProjectRuns({ ...api.services, ...api.services.system }, project);

async function count(table: 'runs' | 'traces'): Promise<number> {
  const [row] = await api.services.clickhouse.query<{ count: number }>({
    name: 'test',
    sql: `SELECT count() AS count FROM ${table} FINAL`,
  });
  return row?.count ?? -1;
}

it('the second purge counts only if the sinks have stored everything', async () => {
  const signal = AbortSignal.abort();
  const isSecond = (behind: Topic | undefined, isDue = true) =>
    isSecondPurge({ position: async () => ({}), isStored: async (topic) => topic !== behind }, { isDue, signal });
  expect([await isSecond(undefined), await isSecond(undefined, false)]).toEqual([true, false]);
  for (const topic of [runEvents, feedbackEvents, attachmentEvents])
    expect([topic.name, await isSecond(topic)]).toEqual([topic.name, false]);
});

describe('deletion of a project', () => {
  it('deletes its runs, keeps its traces, and does not touch a project that was not deleted', async () => {
    const [going, staying] = [await projectWithRun(), await projectWithRun()];
    const [runs, traces] = [await count('runs'), await count('traces')];
    await deleteProjects(api.services, going.workspaceId, [going.projectId]);
    for (const project of [going, going, staying]) await purge(project);
    expect([await count('runs'), await count('traces')]).toEqual([runs - 1, traces]);
  });

  it('deletes what clients stored with it, and keeps its name', async () => {
    const workspaceId = acme.workspaceIds[0];
    const name = randomUUID();
    const project = { name, description: 'of a customer', extra: { metadata: { customer: 'ada' } } };
    const options = { upsert: false, maxProjects: 1_000 };
    const { id: projectId } = await createProject(api.database, workspaceId, project, options);
    await deleteProjects(api.services, workspaceId, [projectId]);
    await purge({ workspaceId, projectId });
    const left = await api.database.query('SELECT name, description, extra, metadata FROM projects WHERE id = $1', [
      projectId,
    ]);
    expect(left).toEqual([{ name, description: null, extra: null, metadata: {} }]);
  });

  it('deletes dead-letter records of its runs, of itself, and of its traces', async () => {
    const [going, staying] = [await projectWithRun(), await projectWithRun()];
    const [goingIds, stayingIds] = [await addRunWithoutRoot(going), await addRunWithoutRoot(staying)];
    const keys = [...goingIds, ...stayingIds].map((id) => `${going.workspaceId}:${id}`);
    await api.database.execute(
      `INSERT INTO dead_letters (topic, partition, log_offset, key, value, headers, reason, step)
       SELECT topic, 0, n, convert_to(key, 'UTF8'), 'content', '{}', 'test', 'insert'
       FROM unnest($1::text[]) WITH ORDINALITY AS keys (key, n), unnest($2::text[]) AS topics (topic)`,
      [keys, ['run-events', 'attachment-events', 'feedback-events']],
    );
    await deleteProjects(api.services, going.workspaceId, [going.projectId]);
    await purge(going);
    const left = await api.database.query<{ key: string }>(
      `SELECT DISTINCT encode(key, 'escape') AS key FROM dead_letters`,
    );
    expect(left.map(({ key }) => key).sort()).toEqual(keys.slice(goingIds.length).sort());
    await api.database.execute('DELETE FROM dead_letters');
  });

  it('deletes runs that were stored after the first purge, an hour later', async () => {
    const project = await projectWithRun();
    const runs = await count('runs');
    await deleteProjects(api.services, project.workspaceId, [project.projectId]);
    await purge(project);
    // As for an event that was still in the log: the request was accepted while the project existed.
    const setDeleted = (time: string) =>
      api.database.execute(`UPDATE projects SET deleted_at = ${time} WHERE id = $1`, [project.projectId]);
    await setDeleted('NULL');
    api.services.projects.forget();
    await sendRun(project.projectId);
    await setDeleted(`now() - interval '59 minutes'`);
    await api.database.execute('UPDATE projects SET purged_at = deleted_at WHERE id = $1', [project.projectId]);
    expect(await count('runs')).toBe(runs);
    const due = async () => {
      const queued: DeletedProject[] = [];
      await requeueDeletions({ ...api.services, enqueueProjectDeletion: async (each) => void queued.push(each) });
      return queued;
    };
    expect(await due()).toEqual([]);
    await api.database.execute(
      `UPDATE projects SET deleted_at = deleted_at - interval '1 minute', purged_at = purged_at - interval '1 minute'
       WHERE id = $1`,
      [project.projectId],
    );
    expect(await due()).toEqual([project]);
    await purge(project);
    expect([await count('runs'), await due()]).toEqual([runs - 1, []]);
  });

  it('deletes attachments and feedback that were stored after the first purge had deleted their runs', async () => {
    const [going, staying] = [await projectWithRun(), await projectWithRun()];
    const ids = [await readRunId(going), await readRunId(staying)] as const;
    await deleteProjects(api.services, going.workspaceId, [going.projectId]);
    await purge(going);
    // Requests that were accepted before the deletion, whose events the sinks store now.
    for (const id of ids) await publishDetails(id);
    const count = (table: string) =>
      api.services.clickhouse.query<{ run_id: string }>({
        name: 'test',
        sql: `SELECT DISTINCT run_id FROM ${table} WHERE run_id IN ('${ids[0]}', '${ids[1]}')`,
      });
    for (const table of ['attachments', 'feedback'])
      await until(`${table} of both runs`, async () => (await count(table)).length === 2);
    await api.database.execute(
      `UPDATE projects SET deleted_at = now() - interval '1 hour', purged_at = now() - interval '1 hour' WHERE id = $1`,
      [going.projectId],
    );
    await purge(going);
    for (const table of ['attachments', 'feedback']) expect(await count(table), table).toEqual([{ run_id: ids[1] }]);
  });

  it('leaves attachments of examples that are stored under the id of one of its runs', async () => {
    const project = await projectWithRun();
    const set = await readRunId(project);
    const attachment = { set, name: 'file', mimeType: 'text/plain', content: Buffer.from('of the example') };
    await storeAttachmentSets(api.services.clickhouse, project.workspaceId, [attachment]);
    const sql = `SELECT name FROM attachments WHERE run_id = '${set}'`;
    const readNames = () => api.services.clickhouse.query({ name: 'test', sql });
    await publishDetails(set);
    await expect.poll(readNames, { timeout: 30_000 }).toHaveLength(2);
    await deleteProjects(api.services, project.workspaceId, [project.projectId]);
    await purge(project);
    expect(await readNames()).toEqual([{ name: 'file' }]);
  });

  it('resumes after a crash before the job was queued, until the runs are deleted', async () => {
    const project = await projectWithRun();
    const crash = () => Promise.reject(new Error('crash'));
    const deps = { ...api.services, enqueueProjectDeletion: crash };
    await expect(deleteProjects(deps, project.workspaceId, [project.projectId])).rejects.toThrow('crash');
    const queued: DeletedProject[] = [];
    const enqueueProjectDeletion = async (each: DeletedProject) => void queued.push(each);
    await requeueDeletions({ database: api.database, enqueueProjectDeletion });
    expect(queued).toEqual([project]);
    await purge(project);
    await requeueDeletions({ database: api.database, enqueueProjectDeletion });
    expect(queued).toEqual([project]);
  });
});
