import { expect, it } from 'vitest';
import { agentOperations } from '../../../api/agent-server/operations.ts';
import { forSuite } from '../../for-suite.ts';
import { isFullExtent, pickSome } from '../../house/extent.ts';
import { listFailures } from '../send-hostile.ts';
import { startAgentServer } from './start-agent-server.ts';

const server = forSuite(() => startAgentServer());

it('responds to no hostile request with a 5xx', { timeout: 900_000 }, async () => {
  const { client, owner, url } = server;
  const { thread_id } = await client.threads.create();
  const { run_id } = await client.runs.create(thread_id, 'echo', { input: {} });
  await client.runs.join(thread_id, run_id);
  const cron = await client.crons.create('echo', { schedule: '0 0 1 1 *', input: {} });
  const { cron_id } = cron as unknown as { cron_id: string };
  await client.store.putItem(['a'], 'k', {});
  const known = { thread_id, run_id, cron_id, assistant_id: 'echo', graph_id: 'echo', namespace: ['a'], key: 'k' };
  const headers = { 'x-api-key': owner.adminKey };
  // `truncate` deletes the resources that the other operations use.
  const served = agentOperations.filter(({ operationId }) => operationId !== 'truncate');
  const deleteOperations = served.filter(({ method }) => method === 'DELETE');
  const others = pickSome(
    served.filter(({ method }) => method !== 'DELETE'),
    1 / 3,
  );
  const first = await listFailures(url, others, { headers, known });
  const last = await listFailures(url, deleteOperations, { headers, known: {} });
  expect(first.taken).toBeGreaterThan(isFullExtent ? 1_000 : 100);
  expect([...first.failures, ...last.failures]).toEqual([]);
});
