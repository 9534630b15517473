import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import type { Config } from '../../../infra/config/settings.ts';
import { createReplicaFinder } from '../../../pipelines/deployments/find-replica-url.ts';
import { type Host, startHost } from '../../../pipelines/deployments/host.ts';
import { requireSlug } from '../../../pipelines/deployments/replicas.ts';
import { createDeployment, updateDeployment } from '../../../pipelines/deployments/write-deployment.ts';
import { deferred } from '../../infra/deferred.ts';
import { until } from '../../infra/until.ts';
import { type DeploymentsUnderTest, openDeployments, readStatus } from './add-deployment.ts';
import { createRecordingDriver, type Recording } from './recording-driver.ts';

/** What hosts start is recorded instead of run. */
let under: DeploymentsUnderTest;
/** Configuration of a host that builds deployments, as only those can sleep. */
let building: Config;
let hosts: Host[];
let recording: Recording;

async function addHost(config: Config): Promise<Host> {
  const host = await startHost(
    {
      ...under,
      config,
      builder: {
        build: async () => ({ agentsFile: '/nowhere' }),
        deleteExcept: async () => undefined,
        close: async () => undefined,
      },
      driver: createRecordingDriver(recording, 'host'),
      sourceStore: { open: async () => ({}) as never, close: async () => undefined },
      enqueueProjectDeletion: async () => undefined,
    },
    { isOnlyHost: false },
  );
  hosts.push(host);
  return host;
}

const createBuilt = (name: string, type: 'dev' | 'prod' = 'dev') =>
  createDeployment({ ...under, config: building }, under.caller, {
    ...{ name, source: 'github', secrets: [], secretReferences: [] },
    sourceConfig: { repo_url: 'https://example.com/repo.git', deployment_type: type },
    sourceRevisionConfig: { repo_ref: 'main' },
  });

const running = (name: string) => recording.started.filter(({ spec, isRunning }) => spec.name === name && isRunning);

const awaitStatus = (revisionId: string | null, status: string) =>
  until(`revision ${status}`, async () => (await readStatus(under.database, revisionId)) === status);

beforeAll(async () => {
  under = await openDeployments({ deploymentsTickMs: 50, deploymentsSwitchMs: 200, deploymentsSleepMinutes: 1 });
  building = { ...under.config, deploymentsDriver: 'process' };
});
afterAll(() => under?.close());
beforeEach(() => {
  hosts = [];
  recording = { started: [], needed: [], failing: new Set(), unstoppable: new Set(), outlivesHost: false };
});
afterEach(async () => {
  await Promise.all(hosts.map((host) => host.stop()));
  await under.database.execute('DELETE FROM deployments');
});

it('a deployment of the type dev sleeps when it is idle, and a request wakes it', async () => {
  await addHost(building);
  const { slug, latestRevisionId } = await createBuilt('sleeping');
  const awake = await createBuilt('awake', 'prod');
  await awaitStatus(latestRevisionId, 'DEPLOYED');
  await awaitStatus(awake.latestRevisionId, 'DEPLOYED');
  await under.database.execute(`UPDATE deployments SET last_used_at = now() - interval '2 minutes'`);
  await until('it to sleep', () => running('sleeping').length === 0);
  expect(running('awake')).toHaveLength(1);
  const starting = deferred();
  recording.startable = starting.promise;
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
  expect(running('sleeping')).toHaveLength(1);
});

it('a deployment of an image does not sleep, because its runs and crons are in its own stores', async () => {
  const one = await addHost(under.config);
  const { id, latestRevisionId } = await under.create('image');
  await awaitStatus(latestRevisionId, 'DEPLOYED');
  await one.stop();
  hosts.shift();
  await addHost(building);
  const idle = await createBuilt('idle');
  await awaitStatus(idle.latestRevisionId, 'DEPLOYED');
  await under.database.execute(`UPDATE deployments SET last_used_at = now() - interval '2 minutes'`);
  await until('the idle one to sleep', () => running('idle').length === 0);
  const isAsleep = async () =>
    (await under.database.query('SELECT FROM deployments WHERE id = $1 AND is_asleep', [id])).length === 1;
  expect(await isAsleep()).toBe(false);
  // As if an earlier release had put it to sleep.
  await under.database.execute('UPDATE deployments SET is_asleep = true');
  await until('the image to wake', async () => !(await isAsleep()));
});

it('an update of a deployment that sleeps is deployed', async () => {
  await addHost(building);
  const { id, slug, latestRevisionId } = await createBuilt('updated asleep');
  await awaitStatus(latestRevisionId, 'DEPLOYED');
  await under.database.execute('UPDATE deployments SET is_asleep = true');
  await until('it to sleep', () => running('updated asleep').length === 0);
  const next = await updateDeployment({ ...under, config: building }, under.caller, id, {}, { always: true });
  await awaitStatus(next.latestRevisionId, 'DEPLOYED');
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
  await addHost(building);
  const { id, latestRevisionId } = await createBuilt('at work');
  const idle = await createBuilt('idle');
  await awaitStatus(latestRevisionId, 'DEPLOYED');
  await awaitStatus(idle.latestRevisionId, 'DEPLOYED');
  // Created by a request that arrived just before its replica stopped.
  await under.database.execute(`UPDATE deployments SET is_asleep = true`);
  await until('both to sleep', () => running('at work').length + running('idle').length === 0);
  await under.database.execute(insert, [id]);
  await until('it to wake', () => running('at work').length === 1);
  await under.database.execute(`UPDATE deployments SET is_asleep = false, last_used_at = now() - interval '2 minutes'`);
  await until('the idle one to sleep', async () => {
    const [row] = await under.database.query<{ is_asleep: boolean }>(
      'SELECT is_asleep FROM deployments WHERE id = $1',
      [idle.id],
    );
    return row?.is_asleep === true;
  });
  expect(running('at work')).toHaveLength(1);
});
