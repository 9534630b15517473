import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { type MainApiClient, withMainApi } from '../../../api/command-line/main-api-client.ts';
import { forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';
import { startRunlake } from '../../runlake-process.ts';

/** A command without LANGSMITH_API_KEY creates a key for itself. */
const runlake = forSuite(() => startRunlake());
beforeAll(async () => {
  vi.stubEnv('RUNLAKE_DATA_DIR', runlake.dataDir);
  vi.stubEnv('RUNLAKE_LOG_LEVEL', 'error');
}, 120_000);
afterEach(() => vi.restoreAllMocks());
afterAll(async () => {
  vi.unstubAllEnvs();
});

type Key = { readonly id: string; readonly description: string };
const listOwnKeys = async (client: Pick<MainApiClient, 'ask'>) =>
  (await client.ask<Key[]>('GET', '/orgs/current/service-keys')).filter(
    ({ description }) => description === 'Created by a command',
  );

const listAsAdmin = async (): Promise<Key[]> => {
  const ask: MainApiClient['ask'] = async (_method, path) =>
    (await fetch(runlake.url + path, { headers: { 'x-api-key': runlake.apiKey } })).json() as never;
  return listOwnKeys({ ask });
};

it('revokes its key when it ends', async () => {
  await withMainApi({}, async (client) => {
    expect(await listOwnKeys(client)).toHaveLength(1);
  });
  expect(await listAsAdmin()).toEqual([]);
});

it('reports its own error if the key cannot be revoked', async () => {
  const note = vi.spyOn(console, 'error').mockImplementation(() => undefined);
  const work = async (client: MainApiClient) => {
    const [own] = await listOwnKeys(client);
    await client.ask('DELETE', `/orgs/current/service-keys/${own?.id}`);
    throw new Error('of the work');
  };
  await expect(withMainApi({}, work)).rejects.toThrow('of the work');
  expect(note.mock.calls).toEqual([[expect.stringMatching(/^The key .* was not revoked: /)]]);
});

it('separates the message of a refusal from its remedy', async () => {
  const work = async (client: MainApiClient) => {
    await client.ask('GET', '/orgs/current/billing/granular-usage');
  };
  await expect(withMainApi({}, work)).rejects.toThrow(/Field required\. Correct the fields/);
});

it('replaces its key before it expires', async () => {
  const seen = new Set<string>();
  await withMainApi(
    {},
    async (client) => {
      await until('two replacements', async () => {
        const keys = await Promise.all([listOwnKeys(client), listOwnKeys(client)]);
        for (const { id } of keys.flat()) seen.add(id);
        return seen.size >= 3;
      });
      expect(await listOwnKeys(client)).toHaveLength(1);
    },
    4_000,
  );
  expect(await listAsAdmin()).toEqual([]);
});
