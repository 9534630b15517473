import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { resealColumns } from '../../../infra/sealing/reseal.ts';
import { identifySecret, sealedClientSecretColumn } from '../../../pipelines/oauth/provider.ts';
import { identifyToken, sealedOAuthTokenColumns } from '../../../pipelines/oauth/token.ts';
import { createSecretSealer } from '../../../pipelines/tenants/secrets.ts';
import { addOrganization } from '../../api/start-api.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';

const stores = forSuite(() => freshStores());
const acme = forSuite(() => addOrganization(stores.database, 'acme'));

const createSealer = (secretKey: string, formerSecretKeys?: string) =>
  createSecretSealer({ formerSecretKeys }, secretKey);

it('encrypts client secrets and tokens of former keys again, after which these keys are not needed', async () => {
  const former = createSealer('k0');
  const { database } = stores;
  const provider = randomUUID();
  await database.execute(
    `INSERT INTO oauth_providers (id, organization_id, provider_id, name, client_id, sealed_client_secret, auth_url,
       token_url, uses_pkce, token_endpoint_auth_method, redirect_uri)
     VALUES ($1, $2, 'mail', 'mail', 'client', $3, 'https://a.example', 'https://a.example', true, 'client_secret_post', 'x')`,
    [provider, acme.id, former.seal('client secret', identifySecret(provider))],
  );
  const token = randomUUID();
  const insertToken = `INSERT INTO oauth_tokens (id, workspace_id, provider, user_id, scopes, sealed_access_token,
    sealed_refresh_token, for_any_agent, is_default) VALUES ($1, $2, $3, 'anna', '{}', $4, $5, true, true)`;
  const workspaceId = acme.workspaceIds[0];
  const [access, refresh] = (['access', 'refresh'] as const).map((kind) =>
    former.seal(kind, identifyToken(token, kind)),
  );
  await database.execute(insertToken, [token, workspaceId, provider, access, refresh]);
  // More tokens than are read at once, without refresh tokens and with the current key.
  const current = createSealer('k1');
  for (let n = 0; n < 1_001; n += 1) {
    const id = randomUUID();
    const sealed = current.seal('current', identifyToken(id, 'access'));
    await database.execute(insertToken, [id, workspaceId, provider, sealed, null]);
  }

  const columns = [sealedClientSecretColumn, ...sealedOAuthTokenColumns];
  const rotating = { sealer: createSealer('k1', 'k0'), logger };
  expect(await resealColumns(database, columns, rotating)).toBe(3);
  expect(await resealColumns(database, columns, rotating)).toBe(0);
  const [stored] = await database.query<{ secret: string; access: string; refresh: string }>(
    `SELECT sealed_client_secret AS secret, sealed_access_token AS access, sealed_refresh_token AS refresh
     FROM oauth_tokens t JOIN oauth_providers p ON p.id = t.provider WHERE t.id = $1`,
    [token],
  );
  expect(current.open(stored?.secret ?? '', identifySecret(provider)).text).toBe('client secret');
  expect(current.open(stored?.access ?? '', identifyToken(token, 'access')).text).toBe('access');
  expect(current.open(stored?.refresh ?? '', identifyToken(token, 'refresh')).text).toBe('refresh');
});
