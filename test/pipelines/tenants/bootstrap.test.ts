import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadConfig } from '../../../infra/config/load.ts';
import { createAuthenticator } from '../../../pipelines/tenants/authenticate.ts';
import { bootstrap } from '../../../pipelines/tenants/bootstrap.ts';
import { deriveHandle } from '../../../pipelines/tenants/organizations.ts';
import { freshStores } from '../../engines/stores.ts';
import { logger } from '../../silent-logger.ts';

const { config } = loadConfig({});
const chosenKey = 'a-key-that-the-operator-chose';

let stores: Awaited<ReturnType<typeof freshStores>>;
beforeEach(async () => {
  stores = await freshStores();
});
afterEach(() => stores.close());

async function authenticateKey(key: string) {
  const authenticator = createAuthenticator({ database: stores.database, logger });
  try {
    return await authenticator.authenticate({ key });
  } finally {
    await authenticator.close();
  }
}

describe('bootstrap', () => {
  it('creates everything once, and an admin key that needs no workspace header', async () => {
    const outcome = await bootstrap(stores.database, config);
    if (outcome.kind !== 'created') throw new Error(outcome.kind);
    expect(outcome).toMatchObject({ kind: 'created', chosen: false, key: expect.stringMatching(/^rlk_[\w-]{43}$/) });
    const caller = await authenticateKey(outcome.key);
    expect(caller).toMatchObject({ userEmail: 'admin@runlake.local', organizationWide: true });
    expect(caller.workspaceId).toBeDefined();
    expect(caller.permissions).toContain('organization:manage');
    expect(await bootstrap(stores.database, config)).toEqual({ kind: 'present' });
    const stored = await stores.database.query<{ text: string }>('SELECT api_keys::text AS text FROM api_keys');
    expect(stored).toHaveLength(1);
    expect(stored[0]?.text).not.toContain(outcome.key.slice(8, -4));
  });

  it('creates one organisation when many processes start at once', async () => {
    const outcomes = await Promise.all(Array.from({ length: 6 }, () => bootstrap(stores.database, config)));
    expect(outcomes.map(({ kind }) => kind).sort()).toEqual(['created', ...Array(5).fill('present')]);
    for (const table of ['organizations', 'workspaces', 'users', 'api_keys']) {
      expect(await stores.database.query(`SELECT FROM ${table}`)).toHaveLength(1);
    }
  });

  it.each([
    ['Default', 'default'],
    ['  Team Ä & Söhne (EU)  ', 'team-a-sohne-eu'],
    ['東京', 'default'],
    [`${'x'.repeat(80)}`, 'x'.repeat(64)],
  ])('gives a workspace %j the handle %j', (name, handle) => {
    expect(deriveHandle(name)).toBe(handle);
  });

  it('names the organisation and the workspace Default', async () => {
    await bootstrap(stores.database, config);
    const rows = await stores.database.query('SELECT display_name, tenant_handle FROM workspaces');
    expect(rows).toEqual([{ display_name: 'Default', tenant_handle: 'default' }]);
    expect(await stores.database.query('SELECT display_name FROM organizations')).toEqual([
      { display_name: 'Default' },
    ]);
  });

  it('uses the key of the setting', async () => {
    const settings = { ...config, bootstrapApiKey: chosenKey };
    expect(await bootstrap(stores.database, settings)).toEqual({ kind: 'created', key: chosenKey, chosen: true });
    expect(await bootstrap(stores.database, settings)).toEqual({ kind: 'present' });
    expect((await authenticateKey(chosenKey)).organizationWide).toBe(true);
  });

  it('creates the key of a later start in addition to the first one', async () => {
    const first = await bootstrap(stores.database, config);
    const settings = { ...config, bootstrapApiKey: chosenKey };
    const outcomes = await Promise.all([bootstrap(stores.database, settings), bootstrap(stores.database, settings)]);
    expect(outcomes.map(({ kind }) => kind).sort()).toEqual(['key-added', 'present']);
    const [added, original] = [
      await authenticateKey(chosenKey),
      await authenticateKey(first.kind === 'created' ? first.key : ''),
    ];
    expect(added.organizationId).toBe(original.organizationId);
    expect(added.workspaceId).toBe(original.workspaceId);
  });

  it('leaves a revoked key revoked and reports it', async () => {
    const settings = { ...config, bootstrapApiKey: chosenKey };
    await bootstrap(stores.database, settings);
    await stores.database.execute('UPDATE api_keys SET revoked_at = now()');
    expect(await bootstrap(stores.database, settings)).toEqual({ kind: 'key-revoked' });
    await expect(authenticateKey(chosenKey)).rejects.toMatchObject({ code: 'API_KEY_INVALID' });
  });
});
