import { expect, it } from 'vitest';
import { resealColumns } from '../../../infra/sealing/reseal.ts';
import { changeSecrets, createSecretSealer, sealedSecretColumn } from '../../../pipelines/tenants/secrets.ts';
import { addOrganization } from '../../api/start-api.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';

const stores = forSuite(() => freshStores());
const acme = forSuite(() => addOrganization(stores.database, 'acme'));

const deps = (secretKey: string, formerSecretKeys?: string) => ({
  database: stores.database,
  secretSealer: createSecretSealer({ formerSecretKeys }, secretKey),
});

it('seals the secrets of former keys again, after which these keys are not needed', async () => {
  const [one, other] = acme.workspaceIds;
  await changeSecrets(deps('k0'), one, [{ key: 'A KEY', value: 'first' }]);
  await changeSecrets(deps('k1'), other, [{ key: 'A KEY', value: 'second' }]);
  await changeSecrets(deps('k2'), one, [{ key: 'B', value: 'third' }]);
  await changeSecrets(deps('forgotten'), one, [{ key: 'LOST', value: 'lost' }]);
  // More secrets than are read at once; the last has a former key.
  for (let n = 1; n <= 1_000; n += 1) {
    const key = `KEY ${String(n).padStart(4, '0')}`;
    const sealed = deps(n === 1_000 ? 'k1' : 'k2').secretSealer.seal('value', `${one} ${key}`);
    await stores.database.execute('INSERT INTO workspace_secrets VALUES ($1, $2, $3)', [one, key, sealed]);
  }
  const rotating = { sealer: deps('k2', 'k1, k0').secretSealer, logger };
  expect(await resealColumns(stores.database, [sealedSecretColumn], rotating)).toBe(3);
  expect(await resealColumns(stores.database, [sealedSecretColumn], rotating)).toBe(0);
  const stored = await stores.database.query<{ row: string; sealed: string }>(
    `SELECT workspace_id || ' ' || key AS row, sealed_value AS sealed FROM workspace_secrets WHERE key IN ('A KEY', 'B')`,
  );
  const opened = stored.map(({ row, sealed }) => [row, deps('k2').secretSealer.open(sealed, row).text]);
  expect(Object.fromEntries(opened)).toEqual({
    [`${one} A KEY`]: 'first',
    [`${other} A KEY`]: 'second',
    [`${one} B`]: 'third',
  });
});
