import { afterEach, expect, it } from 'vitest';
import { createReplicaFinder } from '../../../pipelines/deployments/find-replica-url.ts';
import { requireSlug } from '../../../pipelines/deployments/replicas.ts';
import { updateDeployment } from '../../../pipelines/deployments/write-deployment.ts';
import { forSuite } from '../../for-suite.ts';
import { deferred } from '../../infra/deferred.ts';
import { until } from '../../infra/until.ts';
import { openHosts } from './open-hosts.ts';

const under = forSuite(() => openHosts({ deploymentsSwitchMs: 200, deploymentsSleepMinutes: 1 }));
/** Configuration of a host that builds deployments, as only those can sleep. */
const building = { deploymentsDriver: 'process' } as const;
afterEach(() => under.clear());

it('a deployment of another type than prod sleeps when it is idle, and a request wakes it', async () => {
  await under.addHost('one', { config: building });
  const { slug, latestRevisionId } = await under.createBuilt('sleeping');
  const scaledToZero = await under.createBuilt('scaled-to-zero', 'dev_zero');
  const awake = await under.createBuilt('awake', 'prod');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  await under.awaitStatus(scaledToZero.latestRevisionId, 'DEPLOYED');
  await under.awaitStatus(awake.latestRevisionId, 'DEPLOYED');
  await under.database.execute(`UPDATE deployments SET last_used_at = now() - interval '2 minutes'`);
  const isAsleep = (name: string) => under.running(name).length === 0;
  await until('them to sleep', () => isAsleep('sleeping') && isAsleep('scaled-to-zero'));
  expect(under.running('awake')).toHaveLength(1);
  const starting = deferred();
  under.recording.startable = starting.promise;
  // Two API processes; the second one, and a second request to the first one, find it awake.
  let reads = 0;
  const query: typeof under.database.query = (...parameters) => {
    reads += 1;
    return under.database.query(...parameters);
  };
  const [finder, other] = [under.database, Object.assign(Object.create(under.database), { query })].map(
    createReplicaFinder,
  );
  const finds = [finder?.find(slug)];
  await until('it to wake', async () => (await requireSlug(under.database, slug)).isAsleep === false);
  finds.push(finder?.find(slug), other?.find(slug));
  const found = Promise.all(finds);
  found.catch(() => undefined);
  await until('the other process to wait', () => reads > 2);
  starting.resolve();
  for (const address of await found) expect(address?.url).toContain(String(latestRevisionId));
  expect(under.running('sleeping')).toHaveLength(1);
});

it('a deployment of an image does not sleep, because its runs and crons are in its own stores', async () => {
  const one = await under.addHost('one');
  const { id, latestRevisionId } = await under.create('image');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  await one.stop();
  await under.addHost('one', { config: building });
  const idle = await under.createBuilt('idle');
  await under.awaitStatus(idle.latestRevisionId, 'DEPLOYED');
  await under.database.execute(`UPDATE deployments SET last_used_at = now() - interval '2 minutes'`);
  await until('the idle one to sleep', () => under.running('idle').length === 0);
  const isAsleep = async () =>
    (await under.database.query('SELECT FROM deployments WHERE id = $1 AND is_asleep', [id])).length === 1;
  expect(await isAsleep()).toBe(false);
  // As if an earlier release had put it to sleep.
  await under.database.execute('UPDATE deployments SET is_asleep = true');
  await until('the image to wake', async () => !(await isAsleep()));
});

it('a finder that stops refuses requests, also those that wait for a replica', async () => {
  await under.addHost('one', { config: building });
  const { slug, latestRevisionId } = await under.createBuilt('stopping');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  await under.database.execute('UPDATE deployments SET is_asleep = true');
  await until('it to sleep', () => under.running('stopping').length === 0);
  const starting = deferred();
  under.recording.startable = starting.promise;
  const finder = createReplicaFinder(under.database);
  const found = finder.find(slug);
  await until('it to wake', async () => (await requireSlug(under.database, slug)).isAsleep === false);
  finder.stop();
  await expect(found).rejects.toMatchObject({ code: 'DRAINING' });
  await expect(finder.find(slug)).rejects.toMatchObject({ code: 'DRAINING' });
  starting.resolve();
});

it('an update of a deployment that sleeps is deployed', async () => {
  await under.addHost('one', { config: building });
  const { id, slug, latestRevisionId } = await under.createBuilt('updated asleep');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  await under.database.execute('UPDATE deployments SET is_asleep = true');
  await until('it to sleep', () => under.running('updated asleep').length === 0);
  const next = await updateDeployment(
    { ...under, config: { ...under.config, ...building } },
    under.caller,
    id,
    {},
    { always: true },
  );
  await under.awaitStatus(next.latestRevisionId, 'DEPLOYED');
  expect((await createReplicaFinder(under.database).find(slug)).url).toContain(String(next.latestRevisionId));
});

it.each([
  [
    'a run that has not ended',
    `INSERT INTO agents.runs (deployment_id, thread_id, run_id, assistant_id, graph_id, kwargs)
     VALUES ($1, $1, $1, $1, 'echo', '{}')`,
  ],
  [
    'a webhook that is not delivered',
    `INSERT INTO agents.webhooks (deployment_id, run_id, url, body) VALUES ($1, $1, 'https://example.com', '{}')`,
  ],
])('a deployment neither falls asleep nor stays asleep with %s', async (_what, insert) => {
  await under.addHost('one', { config: building });
  const { id, latestRevisionId } = await under.createBuilt('at work');
  const idle = await under.createBuilt('idle');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  await under.awaitStatus(idle.latestRevisionId, 'DEPLOYED');
  // Created by a request that arrived just before its replica stopped.
  await under.database.execute(`UPDATE deployments SET is_asleep = true`);
  await until('both to sleep', () => under.running('at work').length + under.running('idle').length === 0);
  await under.database.execute(insert, [id]);
  await until('it to wake', () => under.running('at work').length === 1);
  await under.database.execute(`UPDATE deployments SET is_asleep = false, last_used_at = now() - interval '2 minutes'`);
  await until('the idle one to sleep', async () => {
    const [row] = await under.database.query<{ is_asleep: boolean }>(
      'SELECT is_asleep FROM deployments WHERE id = $1',
      [idle.id],
    );
    return row?.is_asleep === true;
  });
  expect(under.running('at work')).toHaveLength(1);
});
