import { expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startOAuthFlow } from './oauth-flow.ts';

const flow = forSuite(() => startOAuthFlow({ config: { maxOAuthTokens: 2, maxOAuthAuthentications: 3 } }));

it('limits the pending authentications of an organisation, until they end', async () => {
  const start = (key: string, user_id: string) =>
    flow.api.ask(key, 'POST', '/v2/auth/authenticate', { provider: 'mail', scopes: ['mail.read'], user_id });
  const [first, second] = flow.organization.workspaceKeys;
  const urls = [];
  for (const user of ['a', 'b']) urls.push((await start(first, user)).body.url);
  urls.push((await start(second, 'c')).body.url);
  const refused = await start(first, 'd');
  expect(refused).toMatchObject({ status: 422, body: { code: 'LIMIT_REACHED' } });
  expect(refused.body.message).toContain('3 pending OAuth authentications');
  await flow.redirect(await flow.server.visit(urls[0], 'deny'));
  expect(await start(first, 'd')).toMatchObject({ status: 200 });

  await flow.api.database.execute(`UPDATE oauth_authentications SET expires_at = now() - interval '51 minutes'`);
  expect(await start(first, 'e')).toMatchObject({ status: 200 });
  const left = await flow.api.database.query('SELECT user_id FROM oauth_authentications ORDER BY user_id');
  // Rows of the other workspace are deleted by its own requests.
  expect(left).toEqual([{ user_id: 'c' }, { user_id: 'e' }]);
  await flow.api.database.execute('DELETE FROM oauth_authentications');
});

it('limits the tokens of an organisation, and stores nothing beyond', async () => {
  for (const user_id of ['a', 'b']) expect(await flow.grant({ user_id })).toMatchObject({ status: 'completed' });
  const { url, auth_id } = await flow.authenticate({ user_id: 'c' });
  expect(await flow.redirect(await flow.server.visit(url))).toEqual({
    status: 400,
    sentence: 'The organization has too many tokens, so no access was given.',
  });
  expect((await flow.ask('GET', `/v2/auth/wait/${auth_id}?timeout=0`)).body).toEqual({
    status: 'not_found',
    token: null,
  });
  expect((await flow.ask('GET', '/v2/auth/tokens?user_id=c')).body).toEqual([]);
  // A token that is replaced is no further one.
  expect(await flow.grant({ user_id: 'a', scopes: ['mail.send'] })).toMatchObject({ status: 'completed' });
});

it('limits the response with the tokens of a user, and deletes any number of them', async () => {
  await flow.api.database.execute(
    `INSERT INTO oauth_tokens (id, workspace_id, provider, user_id, scopes, sealed_access_token, for_any_agent, is_default)
     SELECT gen_random_uuid(), $1, (SELECT id FROM oauth_providers WHERE provider_id = 'mail'), 'many',
       ARRAY[repeat('{', 110000)], 's1.000000000000.AAAA', true, false FROM generate_series(1, 40)`,
    [flow.organization.workspaceIds[0]],
  );
  const query = 'provider_id=mail&user_id=many';
  expect(await flow.ask('GET', '/v2/auth/tokens?user_id=many')).toMatchObject({
    status: 422,
    body: { code: 'ANSWER_TOO_LARGE' },
  });
  expect((await flow.ask('GET', `/v2/auth/tokens/exists?${query}`)).body).toEqual({ has_token: true });
  expect((await flow.ask('DELETE', `/v2/auth/tokens?${query}`)).body).toMatchObject({ deleted: 40 });
  expect((await flow.ask('GET', `/v2/auth/tokens/exists?${query}`)).body).toEqual({ has_token: false });
});

it('reports a token that cannot be decrypted without its content', async () => {
  await flow.api.database.execute(
    `UPDATE oauth_tokens SET sealed_access_token = 's1.000000000000.AAAA' WHERE user_id = 'a'`,
  );
  const payload = { provider: 'mail', scopes: [], user_id: 'a' };
  const answer = await flow.ask('POST', '/v2/auth/authenticate', payload);
  expect(answer).toMatchObject({ status: 500, body: { code: 'SEAL_BROKEN' } });
  // Deleting works, so that the user can consent again.
  expect(await flow.ask('DELETE', '/v2/auth/tokens?provider_id=mail&user_id=a')).toMatchObject({ status: 200 });
  expect(await flow.authenticate({ user_id: 'a' })).toMatchObject({ status: 'pending' });
});
