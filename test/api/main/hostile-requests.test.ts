import { randomUUID } from 'node:crypto';
import { beforeAll, expect, it } from 'vitest';
import { operations } from '../../../api/main/operations.ts';
import { forSuite } from '../../for-suite.ts';
import { isFullExtent, pickSome } from '../../house/extent.ts';
import { addExport } from '../add-export.ts';
import { listFailures } from '../send-hostile.ts';
import { addOrganization, startApi } from '../start-api.ts';

const api = forSuite(() => startApi({ config: { patchWaitMs: 0 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));
let url: string;

beforeAll(async () => {
  url = await api.listen();
}, 120_000);

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
