import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import type { Config } from '../../../infra/config/settings.ts';
import type { Builder } from '../../../pipelines/deployments/build/build-source.ts';
import type { DeploymentDriver } from '../../../pipelines/deployments/driver.ts';
import { createReplicaFinder } from '../../../pipelines/deployments/find-replica-url.ts';
import { type Host, startHost } from '../../../pipelines/deployments/host.ts';
import { addReplicas, readProgress } from '../../../pipelines/deployments/replicas.ts';
import { requestDeletion } from '../../../pipelines/deployments/request-deletion.ts';
import { createDeployment, redeploy, updateDeployment } from '../../../pipelines/deployments/write-deployment.ts';
import { deferred, untilAborted } from '../../infra/deferred.ts';
import { until } from '../../infra/until.ts';
import { type DeploymentsUnderTest, openDeployments, readStatus } from './add-deployment.ts';
import { createRecordingDriver, type Recording } from './recording-driver.ts';

/** Hosts share the work through real rows; what they start is recorded instead of run. */
let under: DeploymentsUnderTest;
let hosts: Host[];
let recording: Recording;
let started: Recording['started'];

const builder: Builder = {
  build: async () => ({ agentsFile: '/nowhere' }),
  deleteExcept: async () => undefined,
  close: async () => undefined,
};

async function addHost(name: string): Promise<Host> {
  const sourceStore = { open: async () => ({ delete: async () => undefined }) as never, close: async () => undefined };
  const host = await startHost(
    {
      ...under,
      builder,
      driver: createRecordingDriver(recording, name),
      sourceStore,
      enqueueProjectDeletion: async () => undefined,
    },
    { isOnlyHost: false },
  );
  hosts.push(host);
  return host;
}

const running = (name: string) => started.filter(({ spec, isRunning }) => spec.name === name && isRunning);

beforeAll(async () => {
  under = await openDeployments({
    deploymentsTickMs: 50,
    deploymentsLeaseMs: 2_000,
    deploymentsRestartDelayMs: 50,
    deploymentsSwitchMs: 200,
  });
});
afterAll(() => under?.close());
beforeEach(() => {
  hosts = [];
  recording = { started: [], needed: [], failing: new Set(), unstoppable: new Set(), outlivesHost: false };
  ({ started } = recording);
});
afterEach(async () => {
  await Promise.all(hosts.map((host) => host.stop()));
  await under.database.execute('DELETE FROM deployments');
});

const awaitStatus = (revisionId: string | null, status: string) =>
  until(`revision ${status}`, async () => (await readStatus(under.database, revisionId)) === status);

it('two hosts start each replica once', async () => {
  await Promise.all([addHost('one'), addHost('two')]);
  const names = Array.from({ length: 8 }, (_, index) => `shared ${index}`);
  const deployments = await Promise.all(
    names.map((name) => under.create(name, { sourceConfig: { resource_spec: { min_scale: 2 } } })),
  );
  for (const { latestRevisionId } of deployments) await awaitStatus(latestRevisionId, 'DEPLOYED');
  expect(started).toHaveLength(16);
  for (const name of names)
    expect(
      running(name)
        .map(({ spec }) => spec.number)
        .sort(),
    ).toEqual([1, 2]);
});

it('a host removes replicas that a killed host has left, but none that another host holds', async () => {
  await addHost('one');
  const { id, latestRevisionId } = await under.create('held');
  await awaitStatus(latestRevisionId, 'DEPLOYED');
  const before = recording.needed.length;
  await addHost('two');
  await until('the second host to clean up', () => recording.needed.length > before);
  expect(recording.needed.at(-1)).toEqual([{ deploymentId: id, revisionId: latestRevisionId, number: 1 }]);
});

it('a host removes no replica that it has yet to take over from a killed host', async () => {
  const one = await addHost('one');
  const deployments = await Promise.all([1, 2, 3, 4, 5, 6].map((number) => under.create(`left ${number}`)));
  for (const { latestRevisionId } of deployments) await awaitStatus(latestRevisionId, 'DEPLOYED');
  await one.stop();
  hosts.shift();
  const before = recording.needed.length;
  // A host claims a few replicas at a time, and cleans up after the first of them.
  await addHost('two');
  await until('the second host to clean up', () => recording.needed.length > before);
  expect(recording.needed[before]).toHaveLength(6);
});

it('the new revision answers before the old one drains, and requests then find only the new one', async () => {
  await addHost('one');
  const { id, slug, latestRevisionId } = await under.create('rolling');
  await awaitStatus(latestRevisionId, 'DEPLOYED');
  const finder = createReplicaFinder(under.database);
  expect((await finder.find(slug)).url).toContain(String(latestRevisionId));
  const change = { sourceRevisionConfig: { image_uri: 'registry.example/image:2' } };
  const next = await updateDeployment(under, under.caller, id, change, { always: false });
  await awaitStatus(next.latestRevisionId, 'DEPLOYED');
  const [old, replacement] = started;
  expect([old?.isRunning, replacement?.isRunning]).toEqual([true, true]);
  expect((await finder.find(slug, { avoid: new Set(['old']) })).url).toContain(String(next.latestRevisionId));
  await until('the old replica to drain', () => old?.isRunning === false);
  expect(old?.drainedMs).toBe(under.config.drainTimeoutMs);
  expect(replacement?.isRunning).toBe(true);
  const back = await redeploy(under, under.caller, id, String(latestRevisionId));
  await awaitStatus(back.latestRevisionId, 'DEPLOYED');
  expect(started.at(-1)?.spec.imageUri).toBe('registry.example/image:1');
});

it('a revision that cannot start leaves the previous one serving', async () => {
  await addHost('one');
  const { id, slug, latestRevisionId } = await under.create('failing');
  await awaitStatus(latestRevisionId, 'DEPLOYED');
  recording.failing.add('failing');
  const next = await updateDeployment(under, under.caller, id, {}, { always: true });
  await awaitStatus(next.latestRevisionId, 'DEPLOY_FAILED');
  expect(running('failing')).toHaveLength(1);
  expect((await createReplicaFinder(under.database).find(slug)).url).toContain(String(latestRevisionId));
  const [transition] = await under.database.query<{ reason: string }>(
    `SELECT reason FROM revision_transitions WHERE revision_id = $1 AND to_status = 'DEPLOY_FAILED'`,
    [next.latestRevisionId],
  );
  expect(transition?.reason).toMatch(/^The graph is broken\..*\nstarting failing$/);
});

it('starts a replica that ended again, and counts that', async () => {
  await addHost('one');
  const { latestRevisionId } = await under.create('crashing');
  await awaitStatus(latestRevisionId, 'DEPLOYED');
  started[0]?.end('It was killed');
  await until('a second start', () => running('crashing').length === 1 && started.length === 2);
  await until('the restart to be counted', async () => {
    const [row] = await under.database.query<{ restarts: number; failures: number; url: string | null }>(
      'SELECT restarts, failures, url FROM deployment_replicas WHERE revision_id = $1',
      [latestRevisionId],
    );
    return row?.restarts === 1 && row.failures === 1 && row.url !== null;
  });
});

it('starts a replica that answered for a minute without the delay of earlier failures', async () => {
  const one = await addHost('one');
  const { latestRevisionId } = await under.create('recovered');
  await awaitStatus(latestRevisionId, 'DEPLOYED');
  await under.database.execute('UPDATE deployment_replicas SET failures = 20');
  await one.stop();
  hosts.shift();
  await addHost('two');
  await until('a second start', async () => {
    const sql = 'SELECT FROM deployment_replicas WHERE url IS NOT NULL';
    return started.length === 2 && (await under.database.query(sql)).length === 1;
  });
  await under.database.execute(`UPDATE deployment_replicas SET started_at = now() - interval '2 minutes'`);
  started[1]?.end('It was killed');
  await until('a third start', () => started.length === 3);
});

it('a replica of a killed host does not count as answering', async () => {
  const { id: deploymentId, latestRevisionId } = await under.create('half dead');
  const revisionId = String(latestRevisionId);
  await under.database.transaction((tx) => addReplicas(tx, { deploymentId, revisionId, count: 2 }));
  await under.database.execute(
    `UPDATE deployment_replicas SET url = 'http://127.0.0.1:1', lease_until = now() + interval '1 minute' * (number - 1.5)`,
  );
  expect(await readProgress(under.database, revisionId)).toMatchObject({ total: 2, answering: 1 });
});

it('a host whose lease was taken ends its replica at once; the other one runs it', async () => {
  await addHost('one');
  const { latestRevisionId } = await under.create('taken');
  await awaitStatus(latestRevisionId, 'DEPLOYED');
  // As if the first host had not renewed its lease in time, and another one had claimed the replica.
  await under.database.execute(
    `UPDATE deployment_replicas SET fence = fence + 1, host_id = gen_random_uuid(), lease_until = now() - interval '1 second'`,
  );
  await until('the replica of the first host to end', () => started[0]?.isRunning === false);
  expect(started[0]?.drainedMs).toBe(0);
  await until('a new replica', () => running('taken').length === 1);
});

it('a host leaves a replica that outlives it to the host that has taken its lease', async () => {
  recording.outlivesHost = true;
  await addHost('one');
  const { latestRevisionId } = await under.create('taken');
  await awaitStatus(latestRevisionId, 'DEPLOYED');
  await under.database.execute(
    `UPDATE deployment_replicas SET fence = fence + 1, host_id = gen_random_uuid(), lease_until = now() + interval '1 hour'`,
  );
  await until('the first host to leave it', () => started[0]?.isDetached === true);
  expect(started).toMatchObject([{ isRunning: true, drainedMs: undefined }]);
});

it('another host continues when a host stops', async () => {
  const one = await addHost('one');
  const { latestRevisionId } = await under.create('moving');
  await awaitStatus(latestRevisionId, 'DEPLOYED');
  await addHost('two');
  hosts.shift();
  await one.stop();
  await until('the other host to run it', () => running('moving')[0]?.host === 'two');
});

it('a host that stops keeps its leases until its replicas have drained', async () => {
  const one = await addHost('one');
  const { latestRevisionId } = await under.create('draining');
  await awaitStatus(latestRevisionId, 'DEPLOYED');
  const draining = deferred();
  recording.drained = draining.promise;
  const stopped = one.stop();
  await until('it to drain', () => started[0]?.drainedMs !== undefined);
  const readLease = async () =>
    (await under.database.query<{ lease: string }>('SELECT lease_until AS lease FROM deployment_replicas'))[0]?.lease;
  const lease = await readLease();
  await until('a renewal', async () => (await readLease()) !== lease);
  await addHost('two');
  draining.resolve();
  await stopped;
  hosts.shift();
  await until('the other host to run it', () => running('draining')[0]?.host === 'two');
});

it('deletes a deployment after its replica has drained', async () => {
  await addHost('one');
  const { id, slug, latestRevisionId, tracingProjectId } = await under.create('deleted', {
    secrets: [{ name: 'KEY', value: 'value' }],
  });
  await awaitStatus(latestRevisionId, 'DEPLOYED');
  await under.database.execute('INSERT INTO agents.threads (deployment_id, thread_id) VALUES ($1, gen_random_uuid())', [
    id,
  ]);
  await requestDeletion(under.database, under.workspaceId, id, { deletesProject: true });
  await until('its row to be deleted', async () => {
    const rows = await under.database.query('SELECT FROM deployments WHERE id = $1', [id]);
    return rows.length === 0;
  });
  expect(started[0]?.drainedMs).toBe(under.config.drainTimeoutMs);
  for (const table of ['deployment_revisions', 'deployment_replicas', 'source_uploads', 'agents.threads'])
    expect(await under.database.query(`SELECT FROM ${table} WHERE deployment_id = $1`, [id])).toEqual([]);
  const [project] = await under.database.query('SELECT deleted_at FROM projects WHERE id = $1', [tracingProjectId]);
  expect(project).toEqual({ deleted_at: expect.any(String) });
  await expect(createReplicaFinder(under.database).find(slug)).rejects.toMatchObject({ code: 'NOT_FOUND' });
});

it('fails a revision whose replicas do not answer in time', async () => {
  const stuck = { ...under, config: { ...under.config, deploymentsStartTimeoutMs: 500 } };
  const driver: DeploymentDriver = {
    name: 'docker',
    start: (_spec, { signal, onLog }) => {
      onLog('waiting for a database');
      return untilAborted(signal);
    },
  };
  const sourceStore = { open: async () => ({}) as never, close: async () => undefined };
  hosts.push(
    await startHost(
      { ...stuck, builder, driver, sourceStore, enqueueProjectDeletion: async () => undefined },
      { isOnlyHost: true },
    ),
  );
  const { latestRevisionId } = await under.create('stuck');
  await awaitStatus(latestRevisionId, 'DEPLOY_FAILED');
  const [transition] = await under.database.query<{ reason: string }>(
    `SELECT reason FROM revision_transitions WHERE revision_id = $1 AND to_status = 'DEPLOY_FAILED'`,
    [latestRevisionId],
  );
  expect(transition?.reason).toMatch(/did not answer within 500 ms\..*\nwaiting for a database$/);
});

it('builds at most as many sources at once as the setting allows', async () => {
  let building = 0;
  let most = 0;
  const slow: Builder = {
    ...builder,
    // Replicas ask for a build too; `build-source.test.ts` limits those.
    async build({ revisionId }) {
      if ((await readStatus(under.database, revisionId)) !== 'BUILDING') return { agentsFile: '/nowhere' };
      building += 1;
      most = Math.max(most, building);
      await new Promise((resolve) => setTimeout(resolve, 100));
      building -= 1;
      return { agentsFile: '/nowhere' };
    },
  };
  const config: Config = { ...under.config, deploymentsDriver: 'process', deploymentsBuildsAtOnce: 1 };
  const sourceStore = { open: async () => ({}) as never, close: async () => undefined };
  const driver = createRecordingDriver(recording, 'one');
  const enqueueProjectDeletion = async () => undefined;
  hosts.push(
    await startHost(
      { ...under, config, builder: slow, driver, sourceStore, enqueueProjectDeletion },
      { isOnlyHost: true },
    ),
  );
  const made = await Promise.all(
    ['first', 'second', 'third'].map((name) =>
      createDeployment({ ...under, config }, under.caller, {
        ...{ name, source: 'github', secrets: [], secretReferences: [] },
        sourceConfig: { repo_url: 'https://example.com/repo.git' },
        sourceRevisionConfig: { repo_ref: 'main' },
      }),
    ),
  );
  for (const { latestRevisionId } of made) await awaitStatus(latestRevisionId, 'DEPLOYED');
  expect(most).toBe(1);
  expect(started).toHaveLength(3);
});
