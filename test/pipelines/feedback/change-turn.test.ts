import { randomUUID } from 'node:crypto';
import { afterEach, beforeAll, expect, it, vi } from 'vitest';
import { createFeedback, deleteFeedback, type FeedbackDeps } from '../../../pipelines/feedback/write-feedback.ts';
import { addOrganization, startApi } from '../../api/start-api.ts';
import { forSuite } from '../../for-suite.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));
let deps: FeedbackDeps;
beforeAll(async () => {
  const { accept, clickhouse, database, config, recentFeedback: recent, sentConfigs } = api.services;
  deps = { log: accept.log, clickhouse, database, config, recent, sentConfigs };
});
afterEach(() => void vi.restoreAllMocks());

it('a deletion that loses its turn is not logged', async () => {
  const [tenantId] = acme.workspaceIds;
  const { body } = await api.ask(acme.adminKey, 'POST', '/feedback', { key: 'k', run_id: randomUUID() });
  const { now } = performance;
  // A log that other processes use too, which takes longer than the lease.
  const log = {
    ...{ publish: vi.fn(), schemaId: () => 1, isStored: async () => true, isExclusive: false },
    position: async () => {
      vi.spyOn(performance, 'now').mockImplementation(() => now.call(performance) + 31_000);
      return {};
    },
  };
  await api.settled();
  const deletion = deleteFeedback({ ...deps, log }, tenantId, body.id);
  await expect(deletion).rejects.toMatchObject({ code: 'OVERLOADED', class: 'transient' });
  expect(log.publish).not.toHaveBeenCalled();
  const logged = () => api.database.query('SELECT action FROM audit_logs WHERE target_id = $1', [body.id]);
  expect(await logged()).toEqual([]);
  vi.restoreAllMocks();
  await deleteFeedback(deps, tenantId, body.id);
  expect(await logged()).toEqual([{ action: 'feedback.delete' }]);
});

it('a deletion whose audit entry cannot be written does not delay the next', async () => {
  const [tenantId] = acme.workspaceIds;
  const { body } = await api.ask(acme.adminKey, 'POST', '/feedback', { key: 'k', run_id: randomUUID() });
  await api.settled();
  const log = { ...deps.log, isExclusive: false } as FeedbackDeps['log'];
  log.publish = (...published) => deps.log.publish(...published);
  log.position = (...topic) => deps.log.position(...topic);
  log.isStored = (...position) => deps.log.isStored(...position);
  log.schemaId = (...topic) => deps.log.schemaId(...topic);
  const database = {
    ...deps.database,
    execute: async (...[sql, ...more]: Parameters<typeof deps.database.execute>) => {
      if (sql.includes('audit_logs')) throw new Error('not now');
      return deps.database.execute(sql, ...more);
    },
  };
  await expect(deleteFeedback({ ...deps, log, database }, tenantId, body.id)).rejects.toThrow('not now');
  const leases = await api.database.query('SELECT FROM feedback_changes WHERE feedback_id = $1', [body.id]);
  expect(leases).toEqual([]);
  await deleteFeedback({ ...deps, log }, tenantId, body.id);
});

it('a new entry waits at most ten seconds for the previous one with its id', async () => {
  const sender = { workspaceId: acme.workspaceIds[0], userId: randomUUID() };
  const body = Buffer.from(JSON.stringify({ id: randomUUID(), key: 'k', run_id: randomUUID() }));
  let publish: () => void = () => undefined;
  const stuck = vi.fn(() => new Promise<void>((resolve) => (publish = resolve)));
  const log = { ...deps.log, schemaId: () => 1, isExclusive: true, publish: stuck } as FeedbackDeps['log'];
  const first = createFeedback(sender, body, { ...deps, log });
  await expect.poll(() => stuck.mock.calls.length, { timeout: 20_000 }).toBe(1);
  const second = createFeedback(sender, body, deps);
  await expect(second).rejects.toMatchObject({ code: 'OVERLOADED', class: 'transient', retryAfterSeconds: 10 });
  publish();
  await first;
});
