import { beforeAll, describe, expect, it } from 'vitest';
import { runAsActor } from '../../../../infra/postgres/actor.ts';
import { forSuite } from '../../../for-suite.ts';
import { addKey, addOrganization, startApi } from '../../start-api.ts';
import { openBrowser } from '../sign-in/browser.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

beforeAll(async () => {
  for (const [index, key] of ['A', 'B', 'C'].entries()) {
    const answer = await api.ask(acme.workspaceKeys[index % 2] as string, 'PUT', `/workspaces/current/secrets/${key}`, {
      value: 'hush',
    });
    expect(answer.status).toBeLessThan(300);
  }
});

const list = async (query: string, key = acme.adminKey) => {
  const answer = await api.ask(key, 'GET', `/api/v1/audit-logs?${query}`);
  return { ...answer, names: answer.body.items?.map(({ target }: { target: { name: string } }) => target.name) };
};

describe('the list', () => {
  it('has pages, newest first, that do not change when entries are added', async () => {
    const first = await list('action=secret&limit=2');
    expect(first.names).toEqual(['C', 'B']);
    await api.ask(acme.workspaceKeys[0], 'PUT', '/workspaces/current/secrets/D', { value: 'hush' });
    const second = await list(`action=secret&limit=2&cursor=${first.body.cursor}`);
    expect([second.names, second.body.cursor]).toEqual([['A'], null]);
  });

  it('filters by time, actor and action', async () => {
    const { body } = await list('action=secret.create');
    const [, , second] = body.items;
    expect((await list(`action=secret&since=${second.at}&until=${body.items[0].at}`)).names).toEqual(['C', 'B']);
    expect((await list(`action=secret&actor=${second.actor.id}`)).names).toEqual(['B']);
    expect((await list('action=secret&actor=admin@acme.example&limit=1000')).names).toEqual(['D', 'C', 'B', 'A']);
    expect((await list('action=secret&actor=api_key')).names).toEqual(['D', 'C', 'B', 'A']);
    expect((await list('action=secr')).names).toEqual([]);
    expect((await list('actor=%25')).names).toEqual([]);
  });

  it('shows a key of one workspace only the entries of this workspace', async () => {
    expect((await list('limit=1000', acme.workspaceKeys[1])).names).toEqual(['B', 'acme 2']);
    const other = await addOrganization(api.database, 'other');
    expect((await list('action=secret', other.adminKey)).names).toEqual([]);
  });

  it.each([
    ['cursor=x', 400],
    ['cursor=0', 400],
    [`cursor=${'9'.repeat(30)}`, 400],
    ['limit=0', 422],
    ['limit=1001', 422],
    ['since=yesterday', 422],
    ['action=%00', 400],
  ])('refuses %s', async (query, status) => {
    expect((await list(query)).status).toBe(status);
  });

  it('needs its permission', async () => {
    const key = await addKey({
      ...{ database: api.database, organizationId: acme.id, userId: acme.userId, permissions: ['organization:read'] },
    });
    expect((await list('', key)).status).toBe(403);
  });
});

describe('an entry', () => {
  it.each([
    'UPDATE audit_logs SET ip = null',
    'DELETE FROM audit_logs',
    'DELETE FROM audit_logs WHERE false',
    'TRUNCATE audit_logs',
  ])('cannot be changed: %s', async (sql) => {
    await expect(api.database.execute(sql)).rejects.toMatchObject({ code: 'DATABASE_QUERY_FAILED' });
    expect((await list('action=secret')).names).toContain('A');
  });

  it('is written in the transaction of the change', async () => {
    const actor = { kind: 'command', id: null, name: 'root', organization_id: null, ip: null } as const;
    const change = runAsActor(actor, () =>
      api.database.transaction(async (tx) => {
        await tx.execute('UPDATE workspaces SET display_name = $2 WHERE id = $1', [
          acme.workspaceIds[0],
          'rolled back',
        ]);
        const rows = await tx.query(`SELECT FROM audit_logs WHERE target_name = 'rolled back' AND actor_name = 'root'`);
        expect(rows).toHaveLength(1);
        throw new Error('rolled back');
      }),
    );
    await expect(change).rejects.toThrow('rolled back');
    expect((await list('action=workspace.update')).names).not.toContain('rolled back');
  });

  it('of a change that Runlake itself makes names the system', async () => {
    await addOrganization(api.database, 'made-by-nobody');
    const [entry] = await api.database.query(
      `SELECT actor_kind, actor_id, ip FROM audit_logs WHERE target_name = 'admin@made-by-nobody.example'`,
    );
    expect(entry).toEqual({ actor_kind: 'system', actor_id: null, ip: null });
  });

  it('names the session of a user who signed in, and the end of it', async () => {
    const browser = openBrowser(api.server);
    browser.csrfToken = (await browser.send('POST', '/session', { api_key: acme.adminKey })).json().csrf_token;
    await browser.send('PUT', '/workspaces/current/secrets/SIGNED_IN', { value: 'hush' });
    await browser.send('DELETE', '/session');
    const { body } = await list('actor=session&limit=3');
    expect(body.items.map(({ action }: { action: string }) => action)).toEqual([
      'session.delete',
      'secret.create',
      'session.create',
    ]);
    expect(JSON.stringify(body)).not.toContain('hush');
  });
});
