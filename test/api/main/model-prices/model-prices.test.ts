import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { startingPrices } from '../../../../pipelines/costs/model-price.ts';
import { forSuite } from '../../../for-suite.ts';
import { addOrganization, askAs, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi({ config: { patchWaitMs: 0 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const ask = askAs(api, acme);
const list = async () => (await ask('GET', '/model-price-map')).body;
const listOwnPriceNames = async () =>
  (await list()).flatMap((price: { name: string; tenant_id: string | null }) => (price.tenant_id ? [price.name] : []));

const price = { name: 'ours', match_pattern: '^ours-', prompt_cost: 0.0000025, completion_cost: '0.00001' };

describe('the prices of a workspace', () => {
  it('are created, listed before those of the release, replaced and deleted', async () => {
    const made = await ask('POST', '/model-price-map', {
      ...price,
      start_time: '2026-01-01T00:00:00Z',
      provider: 'acme',
      prompt_cost_details: { cache_read: 1e-7, 'x.y:z': '1E-20' },
    });
    expect(made).toEqual({
      status: 200,
      body: {
        id: expect.any(String),
        name: 'ours',
        tenant_id: acme.workspaceIds[0],
        start_time: expect.stringMatching(/^2026-01-01T00:00:00/),
        match_path: ['model', 'model_name', 'model_id', 'model_path', 'endpoint_name'],
        match_pattern: '^ours-',
        provider: 'acme',
        prompt_cost: '0.0000025',
        completion_cost: '0.00001',
        prompt_cost_details: { cache_read: '0.0000001', 'x.y:z': '0.00000000000000000001' },
        completion_cost_details: null,
      },
    });
    const { id } = made.body;
    const all = await list();
    expect(all[0]).toEqual(made.body);
    expect(all).toHaveLength(startingPrices.length + 1);
    const changed = await ask('PUT', `/model-price-map/${id}`, { ...price, match_path: ['model'] });
    expect(changed.body).toMatchObject({ id, provider: null, start_time: null, match_path: ['model'] });
    expect((await ask('DELETE', `/model-price-map/${id}`)).body).toEqual({ message: 'Model price deleted.' });
    expect((await ask('DELETE', `/model-price-map/${id}`)).status).toBe(404);
    expect((await ask('PUT', `/model-price-map/${id}`, price)).status).toBe(404);
    expect(await listOwnPriceNames()).toEqual([]);
  });

  it('are in the order in which they apply', async () => {
    const wanted = [
      { name: 'for a provider', provider: 'acme' },
      { name: 'since March', start_time: '2026-03-01T00:00:00Z' },
      { name: 'since January', start_time: '2026-01-01T00:00:00Z' },
      { name: 'newer' },
      { name: 'older' },
    ];
    const ids: string[] = [];
    for (const fields of [...wanted].reverse()) {
      ids.push((await ask('POST', '/model-price-map', { ...price, ...fields })).body.id);
    }
    expect(await listOwnPriceNames()).toEqual(wanted.map(({ name }) => name));
    for (const id of ids) await ask('DELETE', `/model-price-map/${id}`);
  });

  it.each([
    ['a bracket that is not closed', { match_pattern: '(a' }, 400, /match_pattern is not a regular expression/],
    ['look-around', { match_pattern: '(?=a)' }, 400, /no look-around/],
    ['a backreference', { match_pattern: '(a)\\1' }, 400, /no backreferences/],
    ['a pattern that compiles to too much', { match_pattern: 'a{500}b{600}' }, 400, /at most 1000 are allowed/],
    ['an empty pattern', { match_pattern: '' }, 422, /match_pattern/],
    ['a pattern that is too long', { match_pattern: 'a'.repeat(1_001) }, 422, /match_pattern/],
    ['a negative cost', { prompt_cost: -1 }, 400, /prompt_cost is -1, not dollars a token/],
    ['a cost that is no number', { completion_cost: '1,5' }, 400, /completion_cost is ..1,5/],
    ['a cost that would be rounded to zero', { prompt_cost: 1e-21 }, 400, /at most 20 digits/],
    ['a cost with too many digits', { prompt_cost: `0.${'1'.repeat(21)}` }, 400, /at most 20 digits/],
    ['a cost that is too high', { prompt_cost: '1000000.1' }, 400, /from 0 to 1000000/],
    [
      'a cost of details',
      { prompt_cost_details: { cache_read: 'free' } },
      400,
      /prompt_cost_details.cache_read is ..free/,
    ],
    ['a kind with a quote', { prompt_cost_details: { '"': 1 } }, 400, /prompt_cost_details has the kind of token/],
    [
      'too many kinds',
      { prompt_cost_details: Object.fromEntries(Array.from({ length: 33 }, (_, at) => [`k${at}`, 1])) },
      422,
      /prompt_cost_details/,
    ],
    ['another member', { match_path: ['engine'] }, 422, /match_path/],
    ['no name', { name: undefined }, 422, /name/],
    ['a NUL character', { name: 'a\0' }, 422, /NUL/],
    ['a time that does not exist', { start_time: '2026-02-30T00:00:00Z' }, 422, /start_time/],
  ])('%s is refused', async (_name, fields, status, reason) => {
    const answer = await ask('POST', '/model-price-map', { ...price, ...fields });
    expect(answer.status).toBe(status);
    expect(JSON.stringify(answer.body)).toMatch(reason);
    expect(await listOwnPriceNames()).toEqual([]);
  });

  it('have a limited number, and a limited size of patterns', async () => {
    const [workspaceId] = acme.workspaceIds;
    await api.database.execute(
      `INSERT INTO model_prices (id, workspace_id, name, match_path, match_pattern, pattern_size, prompt_cost, completion_cost)
       SELECT gen_random_uuid(), $1, 'many', '{model}', 'x', 10, '1', '1' FROM generate_series(1, 499)`,
      [workspaceId],
    );
    const { id } = (await ask('POST', '/model-price-map', price)).body;
    const more = await ask('POST', '/model-price-map', price);
    expect(more.status).toBe(422);
    expect(JSON.stringify(more.body)).toMatch(/500 model prices in a workspace/);
    await api.database.execute('UPDATE model_prices SET pattern_size = 20 WHERE workspace_id = $1', [workspaceId]);
    const larger = await ask('PUT', `/model-price-map/${id}`, { ...price, match_pattern: 'a{100}' });
    expect(larger.status).toBe(422);
    expect(JSON.stringify(larger.body)).toMatch(/10000 instructions of RE2/);
    await api.database.execute('DELETE FROM model_prices WHERE workspace_id = $1', [workspaceId]);
  });
});

describe('the prices of the release', () => {
  it('cannot be changed', async () => {
    const [first] = await list();
    expect(first.tenant_id).toBeNull();
    for (const answer of [
      await ask('DELETE', `/model-price-map/${first.id}`),
      await ask('PUT', `/model-price-map/${first.id.toUpperCase()}`, price),
    ]) {
      expect(answer.status).toBe(400);
      expect(JSON.stringify(answer.body)).toMatch(/is part of the release and cannot be changed. Create a price/);
    }
  });

  it('need no permission to manage them, but one to list them', async () => {
    const refused = await api.ask('no key', 'GET', '/model-price-map');
    expect(refused.status).toBe(401);
    expect((await ask('DELETE', `/model-price-map/${randomUUID()}`)).status).toBe(404);
  });
});
