import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startOAuthFlow } from './oauth-flow.ts';

const flow = forSuite(() => startOAuthFlow());

const connections = (agent: string, user: string, id = '') =>
  `/v2/auth/agents/${agent}/connections${id && `/${id}`}?user_id=${user}`;
const list = async (agent: string, user: string) => (await flow.ask('GET', connections(agent, user))).body.data;
const tokens = async (user: string) => (await flow.ask('GET', `/v2/auth/tokens?user_id=${user}`)).body;

it('a token granted for an agent is used only by this agent', async () => {
  const user_id = 'ann';
  const granted = await flow.grant({ user_id, agent_id: 'triage' });
  expect(await list('triage', user_id)).toEqual([
    {
      id: expect.any(String),
      agent_id: 'triage',
      oauth_token_id: granted.metadata.token_id,
      provider_id: 'mail',
      provider_account_label: null,
      scopes: ['mail.read'],
      expires_at: expect.any(String),
      created_by: user_id,
      created_at: expect.any(String),
    },
  ]);
  expect(await flow.authenticate({ user_id, agent_id: 'other' })).toMatchObject({ status: 'pending' });
  expect(await flow.authenticate({ user_id })).toMatchObject({ status: 'pending' });
});

it('a token granted without an agent is used by all agents, and is not widened for one of them', async () => {
  const user_id = 'bob';
  const granted = await flow.grant({ user_id });
  expect(await flow.authenticate({ user_id, agent_id: 'triage' })).toMatchObject({ token: granted.token });
  const wider = await flow.grant({ user_id, agent_id: 'triage', scopes: ['mail.send'] });
  expect(wider.metadata.token_id).not.toBe(granted.metadata.token_id);
  expect(await flow.authenticate({ user_id, scopes: ['mail.send'] })).toMatchObject({ status: 'pending' });
  expect(await tokens(user_id)).toHaveLength(2);
});

it('connections are created by the owner of a token, and end', async () => {
  const user_id = 'cleo';
  const granted = await flow.grant({ user_id, agent_id: 'triage' });
  const payload = { oauth_token_id: granted.metadata.token_id };
  const created = await flow.ask('POST', connections('writer', user_id), payload);
  expect(created).toMatchObject({ status: 201, body: { agent_id: 'writer', oauth_token_id: payload.oauth_token_id } });
  expect(await flow.ask('POST', connections('writer', user_id), payload)).toEqual(created);
  expect(await flow.authenticate({ user_id, agent_id: 'writer' })).toMatchObject({ token: granted.token });

  expect(await flow.ask('POST', connections('writer', 'someone'), payload)).toMatchObject({ status: 404 });
  expect(await flow.ask('DELETE', connections('writer', 'someone', created.body.id))).toMatchObject({ status: 404 });
  expect(await flow.ask('DELETE', connections('triage', user_id, created.body.id))).toMatchObject({ status: 404 });
  expect(await flow.ask('DELETE', connections('writer', user_id, created.body.id))).toMatchObject({ status: 204 });
  expect(await flow.authenticate({ user_id, agent_id: 'writer' })).toMatchObject({ status: 'pending' });
});

it('a user has several accounts: the default one is used, unless the agent or the request names another', async () => {
  const user_id = 'dana';
  const first = await flow.grant({ user_id });
  const second = await flow.grant({ user_id, force_new: true });
  expect(second.metadata.token_id).not.toBe(first.metadata.token_id);
  expect(await flow.authenticate({ user_id })).toMatchObject({ token: second.token });

  const token_id = first.metadata.token_id;
  expect(await flow.authenticate({ user_id, token_id })).toMatchObject({ token: first.token });
  const url = `/v2/auth/tokens/${token_id}/metadata?user_id=${user_id}`;
  const labelled = await flow.ask('PATCH', url, { provider_account_label: 'work', is_default: true });
  expect(labelled).toMatchObject({
    status: 200,
    body: { id: token_id, provider_account_label: 'work', is_default: true },
  });
  expect((await tokens(user_id)).map(({ is_default }: { is_default: boolean }) => is_default).sort()).toEqual([
    false,
    true,
  ]);
  expect(await flow.authenticate({ user_id })).toMatchObject({
    token: first.token,
    metadata: { provider_account_label: 'work' },
  });

  await flow.ask('POST', connections('triage', user_id), { oauth_token_id: second.metadata.token_id });
  expect(await flow.authenticate({ user_id, agent_id: 'triage' })).toMatchObject({ token: second.token });
  const unlabelled = await flow.ask('PATCH', url, { provider_account_label: null });
  expect(unlabelled.body).toMatchObject({ provider_account_label: null, is_default: true });
  for (const unknown of [randomUUID(), second.metadata.token_id]) {
    const payload = { user_id: 'someone', provider: 'mail', scopes: [], token_id: unknown };
    expect(await flow.ask('POST', '/v2/auth/authenticate', payload)).toMatchObject({ status: 404 });
  }
});

it('force_new starts an authentication although there is a token, and replaces the token that the request names', async () => {
  const user_id = 'gus';
  const first = await flow.grant({ user_id });
  const again = await flow.authenticate({ user_id, force_new: true, token_id: first.metadata.token_id });
  expect(again.status).toBe('pending');
  await flow.redirect(await flow.server.visit(again.url));
  const replaced = await flow.authenticate({ user_id });
  expect(replaced.metadata.token_id).toBe(first.metadata.token_id);
  expect(replaced.token).not.toBe(first.token);
  expect(await tokens(user_id)).toHaveLength(1);
});

it('deleting a token revokes it at the provider, and ends its connections', async () => {
  const user_id = 'eve';
  const granted = await flow.grant({ user_id, agent_id: 'triage' });
  const other = await flow.grant({ user_id, agent_id: 'writer' });
  const url = (id: string) => `/v2/auth/tokens/${id}?user_id=${user_id}`;
  expect(await flow.ask('GET', url(granted.metadata.token_id))).toMatchObject({ status: 200 });
  expect(await flow.ask('DELETE', url(granted.metadata.token_id))).toMatchObject({ status: 204 });
  expect(await flow.server.isActive(granted.token)).toBe(false);
  expect(await flow.ask('GET', url(granted.metadata.token_id))).toMatchObject({ status: 404 });
  expect(await flow.ask('DELETE', url(granted.metadata.token_id))).toMatchObject({ status: 404 });
  expect(await list('triage', user_id)).toEqual([]);

  const exists = async () => (await flow.ask('GET', `/v2/auth/tokens/exists?provider_id=mail&user_id=${user_id}`)).body;
  expect(await exists()).toEqual({ has_token: true });
  const all = await flow.ask('DELETE', `/v2/auth/tokens?provider_id=mail&user_id=${user_id}`);
  expect(all).toEqual({ status: 200, body: { message: 'OAuth tokens deleted', provider_id: 'mail', deleted: 1 } });
  expect(await exists()).toEqual({ has_token: false });
  expect(await flow.server.isActive(other.token)).toBe(false);
});

it('a token is deleted even if its provider is down', async () => {
  const user_id = 'finn';
  await flow.grant({ user_id });
  flow.server.mode = 'failing';
  const answer = await flow.ask('DELETE', `/v2/auth/tokens?provider_id=mail&user_id=${user_id}`);
  flow.server.mode = 'up';
  expect(answer).toMatchObject({ status: 200, body: { deleted: 1 } });
  expect(await tokens(user_id)).toEqual([]);
});
