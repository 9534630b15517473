import { afterAll, beforeAll, expect, it } from 'vitest';
import { loadConfig } from '../../../infra/config/load.ts';
import { createLogger } from '../../../infra/telemetry/logger.ts';
import { changeSecrets, createSecretSealer, resealSecrets } from '../../../pipelines/tenants/secrets.ts';
import { addOrganization, type OrganizationUnderTest } from '../../api/start-api.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';

let stores: FreshStores;
let acme: OrganizationUnderTest;
const logger = createLogger('silent', 'test');

beforeAll(async () => {
  stores = await freshStores();
  acme = await addOrganization(stores.database, 'acme');
});
afterAll(() => stores?.close());

const deps = (secretKey: string, former?: string) => {
  const { config } = loadConfig({ ...(former && { RUNLAKE_FORMER_SECRET_KEYS: former }) });
  return { database: stores.database, secretSealer: createSecretSealer(config, secretKey) };
};

it('seals the secrets of former keys again, after which these keys are not needed', async () => {
  const [one, other] = acme.workspaceIds;
  await changeSecrets(deps('k0'), one, [{ key: 'A KEY', value: 'first' }]);
  await changeSecrets(deps('k1'), other, [{ key: 'A KEY', value: 'second' }]);
  await changeSecrets(deps('k2'), one, [{ key: 'B', value: 'third' }]);
  await changeSecrets(deps('forgotten'), one, [{ key: 'LOST', value: 'lost' }]);
  const rotating = deps('k2', 'k1, k0');
  expect(await resealSecrets(rotating, logger)).toBe(2);
  expect(await resealSecrets(rotating, logger)).toBe(0);
  const stored = await stores.database.query<{ row: string; sealed: string }>(
    `SELECT workspace_id || ' ' || key AS row, sealed_value AS sealed FROM workspace_secrets WHERE key <> 'LOST'`,
  );
  const opened = stored.map(({ row, sealed }) => [row, deps('k2').secretSealer.open(sealed, row).text]);
  expect(Object.fromEntries(opened)).toEqual({
    [`${one} A KEY`]: 'first',
    [`${other} A KEY`]: 'second',
    [`${one} B`]: 'third',
  });
});
