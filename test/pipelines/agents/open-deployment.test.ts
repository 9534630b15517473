import { randomUUID } from 'node:crypto';
import { beforeAll, expect, it } from 'vitest';
import { openDeployment, watchDeployment } from '../../../pipelines/agents/open-deployment.ts';
import { addOrganizationDeployment } from '../../agents/add-deployment.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';
import { logger } from '../../silent-logger.ts';

const stores = forSuite(() => freshStores());
const organizations: { id: string; workspaceId: string }[] = [];
beforeAll(async () => {
  const { database } = stores;
  for (const name of ['first', 'second']) {
    const [id, workspaceId] = [randomUUID(), randomUUID()];
    await database.execute('INSERT INTO organizations (id, display_name) VALUES ($1, $2)', [id, name]);
    await database.execute('INSERT INTO workspaces (id, organization_id, display_name) VALUES ($1, $2, $3)', [
      workspaceId,
      id,
      name,
    ]);
    const user = [randomUUID(), id, `${name}@example.com`];
    await database.execute('INSERT INTO users (id, organization_id, email) VALUES ($1, $2, $3)', user);
    organizations.push({ id, workspaceId });
  }
});

const opened = async (agentsDeployment?: string) => {
  const { deploymentId, operator } = await openDeployment(stores.database, { agentsDeployment });
  return [deploymentId, operator.organizationId, operator.workspaceId];
};

it('is the default deployment of the first organisation if none is named', async () => {
  const [first] = organizations;
  expect(await opened()).toEqual([first?.id, first?.id, first?.workspaceId]);
});

it('is the default deployment of the organisation that is named, made if it is not there', async () => {
  const second = organizations[1] as (typeof organizations)[number];
  const expected = [second.id, second.id, second.workspaceId];
  expect(await opened(second.id)).toEqual(expected);
  expect(await opened(second.id)).toEqual(expected);
});

it('is the deployment that is named', async () => {
  const { id, workspaceId } = organizations[1] as (typeof organizations)[number];
  const named = await addOrganizationDeployment(stores.database, { organizationId: id, workspaceId });
  expect(await opened(named)).toEqual([named, id, workspaceId]);
  await expect(opened(randomUUID())).rejects.toMatchObject({ code: 'NOT_FOUND' });
});

it('ends parts of the agent server that start before and after the deletion of its workspace is known', async () => {
  const { database } = stores;
  const { id, workspaceId } = organizations[0] as (typeof organizations)[number];
  const deployment = await openDeployment(database, { agentsDeployment: id });
  const ended: string[] = [];
  const watch = watchDeployment(database, deployment, logger);
  watch.onDeleted(async () => void ended.push('early'));
  await database.execute('UPDATE workspaces SET deleted_at = now() WHERE id = $1', [workspaceId]);
  await until('the deletion to be known', () => watch.isDeleted);
  watch.onDeleted(async () => void ended.push('late'));
  await until('both parts to end', () => ended.length === 2);
  await watch.stop();
  expect(ended.sort()).toEqual(['early', 'late']);
});
