import { expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

it('asks a client beyond the limit only because of sign-ins in progress to wait for a second', async () => {
  const attempt = (api_key: string) =>
    api.server.inject({ method: 'POST', url: '/api/v1/session', payload: { api_key }, remoteAddress: '192.0.2.8' });
  expect((await attempt('rlk_guess')).statusCode).toBe(401);
  const answers = await Promise.all(Array.from({ length: 60 }, () => attempt(acme.adminKey)));
  const refused = answers.filter(({ statusCode }) => statusCode !== 201);
  expect(refused.length).toBeGreaterThan(0);
  for (const { statusCode, headers } of refused) expect([statusCode, headers['retry-after']]).toEqual([429, '1']);
});
