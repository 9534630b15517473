import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { resealColumns } from '../../../infra/sealing/reseal.ts';
import {
  createShare,
  createShareSealer,
  readShare,
  sealedTokenColumn,
} from '../../../pipelines/shares/share-tokens.ts';
import { addOrganization } from '../../api/start-api.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';

const stores = forSuite(() => freshStores());
const acme = forSuite(() => addOrganization(stores.database, 'acme'));

const deps = (secretKey: string, formerSecretKeys?: string) => ({
  database: stores.database,
  shareSealer: createShareSealer({ formerSecretKeys }, secretKey),
});

it('seals the tokens of former keys again, after which these keys are not needed', async () => {
  const add = async (kind: 'trace' | 'dataset', secretKey: string) => {
    const shared = { kind, workspaceId: acme.workspaceIds[0], targetId: randomUUID() };
    return { shared, token: await createShare(deps(secretKey), shared, { userId: acme.userId }) };
  };
  const known = [await add('trace', 'k0'), await add('dataset', 'k1'), await add('trace', 'k2')];
  const lost = await add('dataset', 'forgotten');
  const rotating = deps('k2', 'k1, k0');
  await expect(readShare(deps('k2'), known[0]!.shared)).rejects.toMatchObject({ code: 'SEAL_KEY_UNKNOWN' });

  const reseal = () => resealColumns(stores.database, [sealedTokenColumn], { sealer: rotating.shareSealer, logger });
  expect(await reseal()).toBe(2);
  expect(await reseal()).toBe(0);
  for (const { shared, token } of known) expect(await readShare(deps('k2'), shared)).toBe(token);
  await expect(readShare(rotating, lost.shared)).rejects.toMatchObject({ code: 'SEAL_KEY_UNKNOWN' });
});
