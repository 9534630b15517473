import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { operations } from '../../../api/main/operations.ts';
import { isFullExtent, pickSome } from '../../house/extent.ts';
import { addExport } from '../add-export.ts';
import { listFailures } from '../send-hostile.ts';
import { type ApiUnderTest, addOrganization, type OrganizationUnderTest, startApi } from '../start-api.ts';

let api: ApiUnderTest;
let acme: OrganizationUnderTest;
let url: string;

beforeAll(async () => {
  api = await startApi({ config: { patchWaitMs: 0 } });
  acme = await addOrganization(api.database, 'acme');
  url = await api.server.listen({ port: 0, host: '127.0.0.1' });
}, 120_000);
afterAll(() => api?.close());

it('responds to no hostile request with a 5xx', { timeout: 600_000 }, async () => {
  const key = acme.workspaceKeys[0];
  const post = async (path: string, payload: object) =>
    (await api.server.inject({ method: 'POST', url: path, headers: { 'x-api-key': key }, payload })).json();
  const { id: projectId } = await post('/sessions', { name: 'p' });
  const runId = randomUUID();
  await post('/runs', { id: runId, name: 'r', run_type: 'chain', inputs: {}, session_id: projectId });
  const { id: feedbackId } = await post('/feedback', { run_id: runId, key: 'k' });
  await api.settled();
  const made = await addExport(api.database, { workspaceId: acme.workspaceIds[0], projectId, word: 'x' });
  const known = {
    ...{ session_id: projectId, session: [projectId], run_id: runId, run: [runId], feedback_id: feedbackId },
    ...{
      workspace_id: acme.workspaceIds[0],
      bulk_export_destination_id: made.destinationId,
      destination_id: made.destinationId,
    },
    ...{ bulk_export_id: made.exportId, source_bulk_export_id: made.exportId },
  };
  // Delete operations run last, with ids that do not exist.
  const deleting = operations.filter(({ method }) => method === 'DELETE');
  const others = pickSome(
    operations.filter(({ method }) => method !== 'DELETE'),
    1 / 6,
  );
  const headers = { 'x-api-key': acme.adminKey };
  const first = await listFailures(url, others, { headers, known });
  const last = await listFailures(url, deleting, { headers, known: {} });
  // Minimum number of requests that pass the checks.
  expect(first.taken).toBeGreaterThan(isFullExtent ? 1_000 : 50);
  expect([...first.failures, ...last.failures]).toEqual([]);
});
