import { afterEach, describe, expect, it } from 'vitest';
import { type Authenticator, createAuthenticator } from '../../../pipelines/tenants/authenticate.ts';
import { revokeKey } from '../../../pipelines/tenants/keys.ts';
import { createWorkspace } from '../../../pipelines/tenants/workspaces.ts';
import { addKey, addOrganization } from '../../api/start-api.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';

const stores = forSuite(() => freshStores());
const acme = forSuite(() => addOrganization(stores.database, 'acme'));
const other = forSuite(() => addOrganization(stores.database, 'other'));
const open: Authenticator[] = [];

function authenticator(): Authenticator {
  const made = createAuthenticator({ database: stores.database, logger });
  open.push(made);
  return made;
}
afterEach(() => Promise.all(open.splice(0).map((made) => made.close())));

describe('the workspace of a request', () => {
  const second = (): string => acme.workspaceIds[1];
  const secondInCapitals = (): string => second().toUpperCase();
  const foreign = (): string => other.workspaceIds[0];
  const getInvalidId = (): string => "' OR 1=1 --";

  it.each([
    ['the only one', 1, undefined, 1],
    ['the named one', 1, second, 1],
    ['named in capitals', 1, secondInCapitals, 1],
    ['the default of an organisation key', 'admin', undefined, 0],
    ['another one of an organisation key', 'admin', second, 1],
    ['none outside the scope of the key', 0, second, 'WORKSPACE_FORBIDDEN'],
    ['none of another organisation', 'admin', foreign, 'WORKSPACE_FORBIDDEN'],
    ['none for a name that is not a UUID', 'admin', getInvalidId, 'WORKSPACE_FORBIDDEN'],
  ] as const)('%s', async (_, keyName, workspace, expected) => {
    const key = keyName === 'admin' ? acme.adminKey : acme.workspaceKeys[keyName];
    const answer = authenticator().authenticate({ key, workspace: workspace?.() });
    if (typeof expected === 'string') await expect(answer).rejects.toMatchObject({ code: expected });
    else expect((await answer).workspaceId).toBe(acme.workspaceIds[expected]);
  });

  it('is undetermined for an organisation key without default, and for a key of several workspaces', async () => {
    const owner = { database: stores.database, organizationId: acme.id, userId: acme.userId };
    const organizationKey = await addKey(owner);
    const multiWorkspaceKey = await addKey({ ...owner, workspaceIds: acme.workspaceIds });
    for (const key of [organizationKey, multiWorkspaceKey]) {
      const caller = await authenticator().authenticate({ key });
      expect(caller.workspaceId).toBeUndefined();
      expect([...caller.readableWorkspaceIds]).toEqual(expect.arrayContaining([...acme.workspaceIds]));
    }
  });

  it('is found right after another process created it', async () => {
    const mine = authenticator();
    const caller = await mine.authenticate({ key: acme.adminKey });
    const made = await createWorkspace(
      { database: stores.database, authenticator: authenticator(), config: { maxWorkspaces: 100 } },
      caller,
      {
        displayName: 'new',
      },
    );
    expect((await mine.authenticate({ key: acme.adminKey, workspace: made.id })).workspaceId).toBe(made.id);
  });

  it('becomes unavailable when the workspace is deleted, while its usage stays readable', async () => {
    const deleted = await addOrganization(stores.database, 'gone');
    await stores.database.execute('UPDATE workspaces SET deleted_at = now() WHERE id = $1', [deleted.workspaceIds[0]]);
    const mine = authenticator();
    await expect(mine.authenticate({ key: deleted.workspaceKeys[0] })).rejects.toMatchObject({
      code: 'WORKSPACE_FORBIDDEN',
    });
    const admin = await mine.authenticate({ key: deleted.adminKey });
    expect(admin.workspaceId).toBeUndefined();
    expect(admin.readableWorkspaceIds).toContain(deleted.workspaceIds[0]);
  });
});

describe('the key of a request', () => {
  const owner = () => ({ database: stores.database, organizationId: acme.id, userId: acme.userId });

  it.each(['', 'wrong', 'rlk_', "'; DROP TABLE api_keys; --", 'x'.repeat(100_000)])(
    '%s is not a valid key',
    async (key) => {
      await expect(authenticator().authenticate({ key })).rejects.toMatchObject({ code: 'API_KEY_INVALID' });
    },
  );

  it('is refused for another organisation', async () => {
    const credentials = { key: acme.adminKey, organization: other.id };
    await expect(authenticator().authenticate(credentials)).rejects.toMatchObject({ code: 'ORGANIZATION_FORBIDDEN' });
    expect(await authenticator().authenticate({ ...credentials, organization: acme.id.toUpperCase() })).toBeDefined();
  });

  it('expires on time, even if it is cached', async () => {
    const key = await addKey({ ...owner(), expiresAt: new Date(Date.now() + 400).toISOString() });
    const mine = authenticator();
    expect(await mine.authenticate({ key })).toBeDefined();
    const code = () =>
      mine.authenticate({ key }).then(
        () => undefined,
        (error) => error.code,
      );
    await expect.poll(code, { timeout: 5_000 }).toBe('API_KEY_INVALID');
  });

  it('is refused at once by the process that revokes it, and soon by others', async () => {
    const key = await addKey(owner());
    const [here, elsewhere] = [authenticator(), authenticator()];
    const [caller] = await Promise.all([here.authenticate({ key }), elsewhere.authenticate({ key })]);
    await revokeKey({ database: stores.database, authenticator: here }, caller, caller.keyId, null);
    await expect(here.authenticate({ key })).rejects.toMatchObject({ code: 'API_KEY_INVALID' });
    const code = () =>
      elsewhere.authenticate({ key }).then(
        () => undefined,
        (error) => error.code,
      );
    await expect.poll(code, { timeout: 5_000 }).toBe('API_KEY_INVALID');
  });

  it('records its use at most once a minute', async () => {
    const key = await addKey(owner());
    const used = async () => {
      const mine = createAuthenticator({ database: stores.database, logger });
      const { keyId } = await mine.authenticate({ key });
      await mine.close();
      const [row] = await stores.database.query<{ at: string }>(
        'SELECT last_used_at AS at FROM api_keys WHERE id = $1',
        [keyId],
      );
      return row?.at;
    };
    const first = await used();
    expect(first).toMatch(/Z$/);
    expect(await used()).toBe(first);
    await stores.database.execute("UPDATE api_keys SET last_used_at = now() - interval '2 minutes'");
    expect(new Date((await used()) as string).getTime()).toBeGreaterThan(Date.now() - 60_000);
  });
});
