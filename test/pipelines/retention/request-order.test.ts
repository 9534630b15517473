/** Deletions of traces do not wait until many others are kept, or found by their metadata. */
import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { changeTraces } from '../../../pipelines/retention/change-traces.ts';
import { requestDeletion, requestKeep } from '../../../pipelines/retention/request-changes.ts';
import { forSuite } from '../../for-suite.ts';
import { openRetention, retentionConfig, type SentTrace } from './retention-under-test.ts';

const under = forSuite(() => openRetention());

/** Runs the job, and returns which kinds of statements it sent, in their order. */
async function listStatements(onKept = async () => {}): Promise<string[]> {
  const { services } = under.api;
  const names: string[] = [];
  const command: typeof services.clickhouse.command = async (statement) => {
    const kind = /^mark-(kept|deleted)-traces$/.exec(statement.name)?.[1];
    if (kind !== undefined) names.push(kind);
    if (kind === 'kept') await onKept();
    await services.clickhouse.command(statement);
  };
  const clickhouse = { ...services.clickhouse, command };
  await changeTraces({ ...services, clickhouse, log: services.system.log, config: retentionConfig });
  return names;
}
const requestWithOthers = ({ projectId, traceId }: SentTrace) =>
  requestKeep(under.api.database, under.workspaceId, {
    projectId,
    traceIds: [traceId, ...Array.from({ length: 999 }, () => randomUUID())],
  });

it('deletions come first, and those that are requested while traces are kept do not wait for all of these', async () => {
  const projectId = await under.addProject('shortlived');
  const traces = [];
  for (let trace = 0; trace < 4; trace++) traces.push(await under.sendTrace(projectId, 10));
  const [first, last, early, late] = traces as [SentTrace, SentTrace, SentTrace, SentTrace];
  await requestWithOthers(first);
  for (let request = 0; request < 10; request++) await requestWithOthers({ ...first, traceId: randomUUID() });
  await requestWithOthers(last);
  const remove = ({ traceId }: SentTrace) =>
    requestDeletion(under.api.database, under.workspaceId, { projectId, traceIds: [traceId] });
  await remove(early);
  let isRequested = false;
  const names = await listStatements(async () => {
    if (!isRequested) await remove(late);
    isRequested = true;
  });
  expect(names).toEqual(['deleted', 'kept', 'deleted', 'kept']);
  for (const { traceId } of [early, late]) expect(await under.readRuns(traceId)).toEqual([]);
});

it('deletions do not wait for many searches by metadata, which are recorded in between', async () => {
  const { services } = under.api;
  const [searched, other] = [await under.addProject(), await under.addProject()];
  const { traceId } = await under.sendTrace(other, 1);
  const request = (traces: Parameters<typeof requestDeletion>[2]) =>
    requestDeletion(services.database, under.workspaceId, traces);
  for (let customer = 0; customer < 25; customer++)
    await request({ projectId: searched, metadata: { customer: String(customer) } });
  await request({ projectId: other, traceIds: [traceId] });
  const marked: unknown[] = [];
  const recorded = new Set<number>();
  const command: typeof services.clickhouse.command = async (statement) => {
    if (statement.name === 'mark-deleted-traces') {
      marked.push(statement.params?.project);
      const [row] = await services.database.query<{ count: number }>(
        'SELECT count(*)::int AS count FROM trace_changes WHERE session_id = $1 AND is_second',
        [searched],
      );
      recorded.add(row?.count ?? -1);
    }
    await services.clickhouse.command(statement);
  };
  const clickhouse = { ...services.clickhouse, command };
  await changeTraces({ ...services, clickhouse, log: services.system.log, config: retentionConfig });
  expect(marked).toHaveLength(26);
  expect(marked.indexOf(other)).toBeLessThanOrEqual(20);
  expect([...recorded]).toEqual([0, 20]);
  expect(await under.readRuns(traceId)).toEqual([]);
});
