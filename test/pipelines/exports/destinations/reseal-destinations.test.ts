import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { loadConfig } from '../../../../infra/config/load.ts';
import { resealColumns } from '../../../../infra/sealing/reseal.ts';
import {
  createDestinationDeps,
  sealedCredentialsColumn,
} from '../../../../pipelines/exports/destinations/destination.ts';
import { openDestination } from '../../../../pipelines/exports/destinations/open-destination.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { logger } from '../../../silent-logger.ts';

const stores = forSuite(() => freshStores());
const workspaceId = randomUUID();

beforeAll(async () => {
  const organizationId = randomUUID();
  await stores.database.execute("INSERT INTO organizations (id, display_name) VALUES ($1, 'acme')", [organizationId]);
  await stores.database.execute("INSERT INTO workspaces (id, organization_id, display_name) VALUES ($1, $2, 'one')", [
    workspaceId,
    organizationId,
  ]);
});

const deps = (secretKey: string, formerSecretKeys?: string) =>
  createDestinationDeps({ ...loadConfig({}).config, formerSecretKeys }, stores.database, secretKey);

async function add(secretKey: string): Promise<string> {
  const id = randomUUID();
  const config = {
    bucket_name: 'bucket',
    prefix: '',
    endpoint_url: 'http://store.example',
    include_bucket_in_prefix: true,
  };
  const credentials = JSON.stringify({ access_key_id: 'key', secret_access_key: 'secret' });
  await stores.database.execute(
    `INSERT INTO bulk_export_destinations (id, workspace_id, destination_type, display_name, config, sealed_credentials)
     VALUES ($1, $2, 's3', 'name', $3, $4)`,
    [id, workspaceId, config, deps(secretKey).sealer.seal(credentials, id)],
  );
  return id;
}

describe('rotation of the secret key', () => {
  it('opens credentials sealed with the former key, reseals them, and then no longer needs that key', async () => {
    const [old, older, fresh, lost] = [await add('k1'), await add('k0'), await add('k2'), await add('forgotten')];
    const open = async (destinationId: string, using: ReturnType<typeof deps>) =>
      (await openDestination(using, { workspaceId, destinationId })).close();
    const rotating = deps('k2', 'k1, k0');
    for (const id of [old, older, fresh]) await open(id, rotating);
    await expect(open(old, deps('k2'))).rejects.toMatchObject({ code: 'SEAL_KEY_UNKNOWN' });

    const reseal = () => resealColumns(stores.database, [sealedCredentialsColumn], { ...rotating, logger });
    expect(await reseal()).toBe(2);
    expect(await reseal()).toBe(0);
    for (const id of [old, older, fresh]) await open(id, deps('k2'));
    await expect(open(lost, rotating)).rejects.toMatchObject({ code: 'SEAL_KEY_UNKNOWN', class: 'terminal' });
  });
});
