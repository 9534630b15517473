import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { hashKey } from '../../../../pipelines/tenants/key-format.ts';
import { loadOperator } from '../../../../pipelines/tenants/operator.ts';
import { forSuite } from '../../../for-suite.ts';
import { type ApiUnderTest, addKey, addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const ask: ApiUnderTest['ask'] = (...request) => api.ask(...request);

async function addMember(email = `${randomUUID()}@example.com`): Promise<string> {
  return (await ask(acme.adminKey, 'POST', '/orgs/current/members', { email })).body.id;
}

const keyOf = (userId: string, organization = acme) =>
  addKey({ database: api.database, organizationId: organization.id, userId });
const remove = (key: string, userId: string) => ask(key, 'DELETE', `/orgs/current/members/${userId}`);
const listed = async () =>
  (await ask(acme.adminKey, 'GET', '/orgs/current/members')).body.members.map(({ id }: { id: string }) => id);

describe('a removed member', () => {
  it('is no longer listed, and their keys are revoked at once', async () => {
    const userId = await addMember();
    const key = await keyOf(userId);
    expect((await ask(key, 'GET', '/orgs')).status).toBe(200);
    expect(await listed()).toContain(userId);
    expect((await remove(acme.adminKey, userId)).status).toBe(200);
    expect((await ask(key, 'GET', '/orgs')).status).toBe(401);
    expect(await listed()).not.toContain(userId);
    expect((await remove(acme.adminKey, userId)).status).toBe(404);
    const [row] = await api.database.query('SELECT revoked_at FROM api_keys WHERE hash = $1', [hashKey(key)]);
    expect(row).toEqual({ revoked_at: expect.any(String) });
  });

  it('loses OAuth tokens and pending authentications; those of others stay', async () => {
    const [userId, otherId] = [await addMember(), await addMember()];
    const urls = { auth_url: 'https://example.com/auth', token_url: 'https://example.com/token' };
    const provider = { provider_id: 'mail', name: 'mail', client_id: 'client', ...urls };
    expect((await ask(acme.adminKey, 'POST', '/v2/auth/providers', provider)).status).toBe(200);
    for (const user_id of [userId, otherId]) {
      const request = { provider: 'mail', scopes: [], user_id };
      expect((await ask(acme.adminKey, 'POST', '/v2/auth/authenticate', request)).status).toBe(200);
      await api.database.execute(
        `INSERT INTO oauth_tokens (id, workspace_id, provider, user_id, scopes, sealed_access_token, for_any_agent, is_default)
         SELECT gen_random_uuid(), $1, id, $2, '{}', 'sealed', true, true FROM oauth_providers`,
        [acme.workspaceIds[0], user_id],
      );
    }
    expect((await remove(acme.adminKey, userId.toUpperCase())).status).toBe(200);
    const left = await api.database.query(
      'SELECT user_id FROM oauth_tokens UNION ALL SELECT user_id FROM oauth_authentications',
    );
    expect(left).toEqual([{ user_id: otherId }, { user_id: otherId }]);
  });

  it('gets no valid key, also from a concurrent request', async () => {
    const userId = await addMember();
    expect((await remove(acme.adminKey, userId)).status).toBe(200);
    expect((await ask(await keyOf(userId), 'GET', '/orgs')).status).toBe(401);
  });

  it('can be added again as a new user, by email or with a key', async () => {
    const email = `${randomUUID()}@example.com`;
    const first = await addMember(email);
    expect((await remove(acme.adminKey, first)).status).toBe(200);
    const second = await addMember(email.toUpperCase());
    expect([typeof second, second === first]).toEqual(['string', false]);
    expect((await remove(acme.adminKey, second)).status).toBe(200);
    const wanted = { description: 'k', user_email: email, organization_wide: true };
    const { status, body } = await ask(acme.adminKey, 'POST', '/orgs/current/service-keys', wanted);
    expect(status).toBe(200);
    expect([first, second]).not.toContain(body.user_id);
    expect((await ask(body.key, 'GET', '/settings')).status).not.toBe(401);
  });

  it('cannot be the operator', async () => {
    const pair = await addOrganization(api.database, 'operator');
    const other = (await ask(pair.adminKey, 'POST', '/orgs/current/members', { email: 'next@example.com' })).body.id;
    const key = await keyOf(other, pair);
    expect((await remove(key, pair.userId)).status).toBe(200);
    expect((await loadOperator(api.database, pair.id)).userId).toBe(other);
  });
});

describe('a member is not removed', () => {
  it('if it is the last with a key that manages the organization, also if two remove each other', async () => {
    const pair = await addOrganization(api.database, 'pair');
    const other = (await ask(pair.adminKey, 'POST', '/orgs/current/members', { email: 'b@example.com' })).body.id;
    expect((await remove(pair.adminKey, pair.userId)).status).toBe(409);
    const key = await keyOf(other, pair);
    const answers = await Promise.all([remove(pair.adminKey, other), remove(key, pair.userId)]);
    const statuses = answers.map(({ status }) => status).sort();
    expect(statuses[0]).toBe(200);
    expect([401, 409]).toContain(statuses[1]);
  });

  it('if its key has permissions that the caller lacks', async () => {
    const userId = await addMember();
    await keyOf(userId);
    const weak = await addKey({
      database: api.database,
      organizationId: acme.id,
      userId: await addMember(),
      permissions: ['organization:manage', 'organization:read'],
    });
    expect((await remove(weak, userId)).status).toBe(403);
    expect(await listed()).toContain(userId);
    // Keys that have expired do not count.
    await api.database.execute(`UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE user_id = $1`, [
      userId,
    ]);
    expect((await remove(weak, userId)).status).toBe(200);
  });
});
