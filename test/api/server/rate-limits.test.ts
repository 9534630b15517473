import { afterEach, expect, onTestFinished, test } from 'vitest';
import { openRateLimiter } from '../../../infra/rate-limit/rate-limiter.ts';
import { stackPart } from '../../engines/stack.ts';
import { logger } from '../../silent-logger.ts';
import { type ApiUnderTest, addKey, addOrganization, startApi } from '../start-api.ts';

let api: ApiUnderTest;
afterEach(() => api?.close());

const ask = async (key: string) => {
  const { statusCode, headers, body } = await api.server.inject({ url: '/sessions', headers: { 'x-api-key': key } });
  return { status: statusCode, retryAfter: headers['retry-after'], body };
};

/** Returns the statuses of concurrent requests. A one-second window may end between them, so a few more may pass. */
const statuses = async (key: string, count: number) =>
  (await Promise.all(Array.from({ length: count }, () => ask(key)))).map(({ status }) => status);

test('responds 429 with Retry-After beyond the limit of a key, and still serves another key', async () => {
  api = await startApi({ config: { rateLimitPerKey: 5 } });
  const { id, userId, adminKey } = await addOrganization(api.database, 'limited');
  const other = await addKey({ database: api.database, organizationId: id, userId });
  const answers = await Promise.all(Array.from({ length: 60 }, () => ask(adminKey)));
  const refused = answers.filter(({ status }) => status === 429);
  expect(refused.length).toBeGreaterThan(0);
  expect(refused[0]?.retryAfter).toBe('1');
  expect(JSON.parse(refused[0]?.body as string)).toMatchObject({
    code: 'RATE_LIMITED',
    detail: 'More than 5 requests per second (RUNLAKE_RATE_LIMIT_PER_KEY).',
  });
  expect(answers.filter(({ status }) => status !== 429).length).toBeGreaterThanOrEqual(5);
  expect((await ask(other)).status).not.toBe(429);
});

test('shares a limit among the keys of an organisation, and keeps organisations separate', async () => {
  api = await startApi({ config: { rateLimitPerOrganization: 5 } });
  const { workspaceKeys } = await addOrganization(api.database, 'limited');
  const other = await addOrganization(api.database, 'other');
  const both = (await Promise.all(workspaceKeys.map((key) => statuses(key, 30)))).flat();
  expect(both).toContain(429);
  expect((await ask(other.adminKey)).status).toBe(200);
});

test.for(['Postgres', 'Redis'] as const)('shares counts between processes in %s', async (store, { skip }) => {
  const redisUrl = store === 'Redis' ? stackPart('redis')?.url : undefined;
  if (store === 'Redis' && redisUrl === undefined) return skip('no Redis');
  api = await startApi();
  const caller = { keyId: crypto.randomUUID(), organizationId: crypto.randomUUID() };
  const processes = [1, 2].map(() => openRateLimiter({ database: api.database, redisUrl, perKey: 20, logger }));
  onTestFinished(async () => {
    for (const one of processes) await one?.close();
  });
  // Redis rejects commands before it is connected; each process counts locally until then.
  const results = async () => {
    const all = processes.flatMap((one) => Array.from({ length: 20 }, () => one?.take(caller)));
    return (await Promise.allSettled(all)).filter(({ status }) => status === 'rejected').length;
  };
  await expect.poll(results, { timeout: 20_000, interval: 1_100 }).toBeGreaterThanOrEqual(10);
});

test('refuses a client beyond its limit without asking the shared store each time', async () => {
  api = await startApi();
  let queries = 0;
  const database = {
    query: <Row>(...parameters: Parameters<typeof api.database.query>) => {
      queries += 1;
      return api.database.query<Row>(...parameters);
    },
  };
  const limiter = openRateLimiter({ database, perKey: 3, logger });
  const caller = { keyId: crypto.randomUUID(), organizationId: crypto.randomUUID() };
  for (let sent = 0; sent < 500; sent += 1) await limiter.take(caller).catch(() => undefined);
  expect(queries).toBeLessThan(100);
  await limiter.close();
});

test('counts locally in each process if the shared store fails', async () => {
  api = await startApi();
  const database = { query: () => Promise.reject(new Error('unavailable')) };
  const limiter = openRateLimiter({ database, perKey: 3, logger });
  const caller = { keyId: 'a', organizationId: 'b' };
  const results = await Promise.allSettled(Array.from({ length: 30 }, () => limiter?.take(caller)));
  expect(results.filter(({ status }) => status === 'fulfilled').length).toBeGreaterThanOrEqual(3);
  expect(results.some((result) => result.status === 'rejected' && result.reason.code === 'RATE_LIMITED')).toBe(true);
});
