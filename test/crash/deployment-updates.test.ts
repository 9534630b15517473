/** SIGKILL of everything while a deployment is updated or deleted: the next start completes it. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { echoSource } from '../api/control-plane/deployment-client.ts';
import { until } from '../infra/until.ts';
import { KilledDeployments } from './killed-deployments.ts';

let under: KilledDeployments;

beforeAll(async () => {
  under = await KilledDeployments.start();
}, 120_000);
afterAll(() => under?.remove());

test('kill -9 during an update: the previous revision serves, and the update is then completed', async () => {
  const first = await under.client.deploy('updated', echoSource('first'));
  await under.client.awaitDeployed(first.id, first.latest_revision_id);
  await under.killAt('DEPLOYED', async () => void (await under.client.push(first.id, echoSource('second'))));
  const { body: found } = await under.client.ask('GET', `/v2/deployments/${first.id}`);
  expect(found.active_revision_id).not.toBeNull();
  await under.client.awaitDeployed(first.id, found.latest_revision_id);
  await until('only the replica of the new revision', async () => {
    const rows = await under.withDatabase((database) =>
      database.query<{ revision_id: string }>('SELECT revision_id FROM deployment_replicas WHERE deployment_id = $1', [
        first.id,
      ]),
    );
    return rows.length === 1 && rows[0]?.revision_id === found.latest_revision_id;
  });
}, 180_000);

test('kill -9 during a deletion: the next start completes it', async () => {
  const made = await under.client.deploy('deleted', echoSource('deleted'));
  await under.client.awaitDeployed(made.id, made.latest_revision_id);
  await under.client.ask('DELETE', `/v2/deployments/${made.id}`);
  await under.restart();
  await until(
    'it to be deleted',
    async () => (await under.client.ask('GET', `/v2/deployments/${made.id}`)).status === 404,
    60_000,
  );
}, 180_000);
