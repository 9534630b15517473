import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { operations } from '../../../../api/main/operations.ts';
import { buildServer } from '../../../../api/server/build-server.ts';
import type { Services } from '../../../../api/server/services.ts';
import { createLogger } from '../../../../infra/telemetry/logger.ts';
import { RecentFeedback } from '../../../../pipelines/feedback/write-feedback.ts';
import { addOrganization, startApi } from '../../start-api.ts';

it('a change of feedback keeps those that other API processes accepted and that are not stored yet, also a deletion', async () => {
  const api = await startApi();
  const { adminKey } = await addOrganization(api.database, 'feedback');
  const logger = createLogger('silent', 'test');
  const serve = () => {
    const services: Services = { ...api.services, recentFeedback: new RecentFeedback() };
    return buildServer({ config: services.config, logger, operations, services });
  };
  const servers = await Promise.all([serve(), serve()]);
  const made = await api.ask(adminKey, 'POST', '/feedback', { key: 'k', run_id: randomUUID(), score: 0 });
  const url = `/feedback/${made.body.id}`;
  const request = async (index: number, method: 'PATCH' | 'DELETE', payload?: object): Promise<number> => {
    const headers = { 'x-api-key': adminKey };
    const answer = await servers[index % 2]!.inject({ method, url, headers, ...(payload && { payload }) });
    // As clients do, while a slow machine stores what was sent.
    return answer.statusCode === 503 ? request(index, method, payload) : answer.statusCode;
  };
  const changes = [{ score: 1 }, { value: 'v' }, { comment: 'c' }, { correction: 'd' }];
  for (const [index, payload] of changes.entries()) expect(await request(index, 'PATCH', payload)).toBe(200);
  expect((await api.ask(adminKey, 'GET', url)).body).toMatchObject(Object.assign({}, ...changes));
  expect(await request(0, 'DELETE')).toBe(200);
  expect(await request(1, 'PATCH', { score: 2 })).toBe(404);
  for (const server of servers) await server.close();
  await api.close();
});
