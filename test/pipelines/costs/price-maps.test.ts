import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { createPriceMaps } from '../../../pipelines/costs/load-price-maps.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';

const stores = forSuite(() => freshStores());

/** Adds a workspace with `count` prices, all of which match every name. @returns its id. */
async function addWorkspace(count: number, pattern: string): Promise<string> {
  const { database } = stores;
  const organizationId = randomUUID();
  const workspaceId = randomUUID();
  await database.execute('INSERT INTO organizations (id, display_name) VALUES ($1, $2)', [organizationId, 'acme']);
  await database.execute(
    'INSERT INTO workspaces (id, organization_id, display_name, tenant_handle) VALUES ($1, $2, $3, $4)',
    [workspaceId, organizationId, 'acme', workspaceId],
  );
  await database.execute(
    `INSERT INTO model_prices (id, workspace_id, name, match_path, match_pattern, pattern_size, prompt_cost, completion_cost)
     SELECT gen_random_uuid(), $1, 'ours', '{model}', $2, 1000, '1', '1' FROM generate_series(1, $3::integer)`,
    [workspaceId, pattern, count],
  );
  return workspaceId;
}

const model = (name: string) => ({ name, provider: undefined, key: 'model' as const });
const names = Array.from({ length: 1_000 }, (_, index) => `model ${index} `.padEnd(250, 'a'));

it('one request is compared with large patterns for a limited number of names', async () => {
  const prices = createPriceMaps(stores.database);
  const workspaceId = await addWorkspace(10, 'a{0,450}');
  const findPriced = async (asked: readonly string[]) => {
    const map = await prices.load(workspaceId);
    return asked.filter((name) => map.find(model(name), 0) !== undefined);
  };
  const priced = await findPriced([...names, names[0] as string]);
  expect(priced.length).toBeGreaterThan(5);
  expect(priced.length).toBeLessThan(50);
  // The result must not depend on what other requests have named, so that a request that is sent again gets the same.
  expect(priced.at(-1)).toBe(names[0]);
  expect(await findPriced([...names, names[0] as string])).toEqual(priced);
  const others = names.slice(-5);
  expect(await findPriced(others)).toEqual(others);
});

it('a request may name a thousand models in a workspace with a hundred prices', async () => {
  const workspaceId = await addWorkspace(100, '^model');
  const map = await createPriceMaps(stores.database).load(workspaceId);
  const shortNames = names.map((name) => name.slice(0, 20));
  expect(shortNames.filter((name) => map.find(model(name), 0) === undefined)).toEqual([]);
});

it('a price of a kind of tokens is also that of the parts that it does not name', async () => {
  const workspaceId = await addWorkspace(1, '^model');
  await stores.database.execute('UPDATE model_prices SET prompt_cost_details = $2 WHERE workspace_id = $1', [
    workspaceId,
    JSON.stringify({ cache_read: '2', cache_creation: '3', ephemeral_1h_input_tokens: '4' }),
  ]);
  const map = await createPriceMaps(stores.database).load(workspaceId);
  const { prompt } = JSON.parse(String(map.find(model('model'), 0)?.details));
  expect(Object.fromEntries(prompt)).toEqual({
    ...{ cache_read: '2', flex_cache_read: '2', priority_cache_read: '2' },
    ...{
      cache_creation: '3',
      cache_write: '3',
      ephemeral_5m_input_tokens: '3',
      ephemeral_1h_input_tokens: '4',
      ephemeral_1hr_input_tokens: '3',
    },
  });
});
