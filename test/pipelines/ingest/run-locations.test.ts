import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { RunLocations } from '../../../pipelines/ingest/accept/run-locations.ts';
import { locateRuns } from '../../../pipelines/runs/locate-run.ts';
import { type ApiUnderTest, addOrganization, type OrganizationUnderTest, startApi } from '../../api/start-api.ts';

let api: ApiUnderTest;
let owner: OrganizationUnderTest;

beforeAll(async () => {
  api = await startApi();
  owner = await addOrganization(api.database, 'owner');
});
afterAll(() => api.close());

it('runs that are asked for in one turn are one question to the store, and each gets its own answer', async () => {
  const [workspaceId, other] = owner.workspaceIds as [string, string];
  const stored = [uuidv7(), uuidv7()];
  for (const id of stored) {
    const payload = { id, name: 'stored', run_type: 'chain', start_time: new Date().toISOString() };
    const headers = { 'x-api-key': owner.adminKey, 'x-tenant-id': workspaceId };
    const answer = await api.server.inject({ method: 'POST', url: '/runs', headers, payload });
    expect(answer.statusCode).toBe(202);
  }
  const asked: (readonly string[])[] = [];
  const places = new RunLocations((workspace, runIds) => {
    asked.push(runIds);
    return locateRuns(api.services.clickhouse, workspace, runIds);
  });
  const unknown = uuidv7();

  const found = await Promise.all([...stored, unknown].map((id) => places.find(workspaceId, id, 0)));

  expect(found.map((place) => place?.traceId)).toEqual([...stored, undefined]);
  expect(asked).toEqual([[...stored, unknown]]);
  expect(await Promise.all(stored.map((id) => places.find(other, id, 0)))).toEqual([undefined, undefined]);
});

it('what the store cannot tell is told to all who asked, and asked anew by the next', async () => {
  let away = true;
  const places = new RunLocations(async (_workspace, runIds) => {
    if (away) throw new Error('away');
    return runIds.map((runId) => ({ runId, traceId: runId, startTimeMicros: 1, traceTimeMicros: 1 }));
  });
  const ends = await Promise.allSettled(['a', 'b'].map((id) => places.find('workspace', id, 0)));
  expect(ends.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  away = false;
  expect(await places.find('workspace', 'a', 0)).toMatchObject({ traceId: 'a' });
});
