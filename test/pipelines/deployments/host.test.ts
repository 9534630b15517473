import { afterEach, expect, it } from 'vitest';
import { createReplicaFinder } from '../../../pipelines/deployments/find-replica-url.ts';
import { addReplicas, readProgress } from '../../../pipelines/deployments/replicas.ts';
import { requestDeletion } from '../../../pipelines/deployments/request-deletion.ts';
import { redeploy, updateDeployment } from '../../../pipelines/deployments/write-deployment.ts';
import { forSuite } from '../../for-suite.ts';
import { deferred, untilAborted } from '../../infra/deferred.ts';
import { until } from '../../infra/until.ts';
import { readStatus } from './add-deployment.ts';
import { openHosts } from './open-hosts.ts';

const under = forSuite(() =>
  openHosts({ deploymentsLeaseMs: 2_000, deploymentsRestartDelayMs: 50, deploymentsSwitchMs: 200 }),
);
afterEach(() => under.clear());

it('two hosts start each replica once', async () => {
  await Promise.all([under.addHost('one'), under.addHost('two')]);
  const names = Array.from({ length: 8 }, (_, index) => `shared ${index}`);
  const deployments = await Promise.all(
    names.map((name) => under.create(name, { sourceConfig: { resource_spec: { min_scale: 2 } } })),
  );
  for (const { latestRevisionId } of deployments) await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  expect(under.recording.started).toHaveLength(16);
  for (const name of names)
    expect(
      under
        .running(name)
        .map(({ spec }) => spec.number)
        .sort(),
    ).toEqual([1, 2]);
});

it('a host removes replicas that a killed host has left, but none that another host holds', async () => {
  await under.addHost('one');
  const { id, latestRevisionId } = await under.create('held');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  const before = under.recording.needed.length;
  await under.addHost('two');
  await until('the second host to clean up', () => under.recording.needed.length > before);
  expect(under.recording.needed.at(-1)).toEqual([{ deploymentId: id, revisionId: latestRevisionId, number: 1 }]);
});

it('a host removes no replica that it has yet to take over from a killed host', async () => {
  const one = await under.addHost('one');
  const deployments = await Promise.all([1, 2, 3, 4, 5, 6].map((number) => under.create(`left ${number}`)));
  for (const { latestRevisionId } of deployments) await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  await one.stop();
  const before = under.recording.needed.length;
  // A host claims a few replicas at a time, and cleans up meanwhile.
  await under.addHost('two');
  await until('the second host to clean up', () => under.recording.needed.length > before);
  expect(under.recording.needed[before]).toHaveLength(6);
});

it('the new revision answers before the old one drains, and requests then find only the new one', async () => {
  await under.addHost('one');
  const { id, slug, latestRevisionId } = await under.create('rolling');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  const finder = createReplicaFinder(under.database);
  expect((await finder.find(slug)).url).toContain(String(latestRevisionId));
  const change = { sourceRevisionConfig: { image_uri: 'registry.example/image:2' } };
  const next = await updateDeployment(under, under.caller, id, change, { always: false });
  await under.awaitStatus(next.latestRevisionId, 'DEPLOYED');
  const [old, replacement] = under.recording.started;
  expect([old?.isRunning, replacement?.isRunning]).toEqual([true, true]);
  expect((await finder.find(slug, { avoid: new Set(['old']) })).url).toContain(String(next.latestRevisionId));
  await until('the old replica to drain', () => old?.isRunning === false);
  expect(old?.drainedMs).toBe(under.config.drainTimeoutMs);
  expect(replacement?.isRunning).toBe(true);
  const back = await redeploy(under, under.caller, id, String(latestRevisionId));
  await under.awaitStatus(back.latestRevisionId, 'DEPLOYED');
  expect(under.recording.started.at(-1)?.spec.imageUri).toBe('registry.example/image:1');
});

it('a revision that cannot start leaves the previous one serving', async () => {
  await under.addHost('one');
  const { id, slug, latestRevisionId } = await under.create('failing');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  under.recording.failing.add('failing');
  const next = await updateDeployment(under, under.caller, id, {}, { always: true });
  const reason = await under.awaitReason(next.latestRevisionId, 'DEPLOY_FAILED');
  expect(reason).toMatch(/^The graph is broken\..*\nstarting failing$/);
  expect(under.running('failing')).toHaveLength(1);
  expect((await createReplicaFinder(under.database).find(slug)).url).toContain(String(latestRevisionId));
});

it('starts a replica that ended again, and counts that', async () => {
  await under.addHost('one');
  const { latestRevisionId } = await under.create('crashing');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  under.recording.started[0]?.end('It was killed');
  await until('a second start', () => under.running('crashing').length === 1 && under.recording.started.length === 2);
  await until('the restart to be counted', async () => {
    const [row] = await under.database.query<{ restarts: number; failures: number; url: string | null }>(
      'SELECT restarts, failures, url FROM deployment_replicas WHERE revision_id = $1',
      [latestRevisionId],
    );
    return row?.restarts === 1 && row.failures === 1 && row.url !== null;
  });
});

it('starts a replica that answered for a minute without the delay of earlier failures', async () => {
  const one = await under.addHost('one');
  const { latestRevisionId } = await under.create('recovered');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  await under.database.execute('UPDATE deployment_replicas SET failures = 20');
  await one.stop();
  await under.addHost('two');
  await until('a second start', async () => {
    const sql = 'SELECT FROM deployment_replicas WHERE url IS NOT NULL';
    return under.recording.started.length === 2 && (await under.database.query(sql)).length === 1;
  });
  await under.database.execute(`UPDATE deployment_replicas SET started_at = now() - interval '2 minutes'`);
  under.recording.started[1]?.end('It was killed');
  await until('a third start', () => under.recording.started.length === 3);
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
  await under.addHost('one');
  const { latestRevisionId } = await under.create('taken');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  // As if the first host had not renewed its lease in time, and another one had claimed the replica.
  await under.database.execute(
    `UPDATE deployment_replicas SET fence = fence + 1, host_id = gen_random_uuid(), lease_until = now() - interval '1 second'`,
  );
  await until('the replica of the first host to end', () => under.recording.started[0]?.isRunning === false);
  expect(under.recording.started[0]?.drainedMs).toBe(0);
  await until('a new replica', () => under.running('taken').length === 1);
});

it('a host leaves a replica that outlives it to the host that has taken its lease', async () => {
  under.recording.outlivesHost = true;
  await under.addHost('one');
  const { latestRevisionId } = await under.create('taken');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  await under.database.execute(
    `UPDATE deployment_replicas SET fence = fence + 1, host_id = gen_random_uuid(), lease_until = now() + interval '1 hour'`,
  );
  await until('the first host to leave it', () => under.recording.started[0]?.isDetached === true);
  expect(under.recording.started).toMatchObject([{ isRunning: true, drainedMs: undefined }]);
});

it('another host continues when a host stops', async () => {
  const one = await under.addHost('one');
  const { latestRevisionId } = await under.create('moving');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  await under.addHost('two');
  await one.stop();
  await until('the other host to run it', () => under.running('moving')[0]?.host === 'two');
});

it('a host that stops keeps its leases until its replicas have drained', async () => {
  const one = await under.addHost('one');
  const { latestRevisionId } = await under.create('draining');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  const draining = deferred();
  under.recording.drained = draining.promise;
  const stopped = one.stop();
  await until('it to drain', () => under.recording.started[0]?.drainedMs !== undefined);
  const readLease = async () =>
    (await under.database.query<{ lease: string }>('SELECT lease_until AS lease FROM deployment_replicas'))[0]?.lease;
  const lease = await readLease();
  await until('a renewal', async () => (await readLease()) !== lease);
  await under.addHost('two');
  draining.resolve();
  await stopped;
  await until('the other host to run it', () => under.running('draining')[0]?.host === 'two');
});

it('requests wait for the next host while a replica drains because its host stops', async () => {
  const one = await under.addHost('one');
  const { slug, latestRevisionId } = await under.create('handed over');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  await under.database.execute(`UPDATE deployments SET last_used_at = now() - interval '1 hour'`);
  const draining = deferred();
  under.recording.drained = draining.promise;
  await under.addHost('two');
  const stopped = one.stop();
  await until('it to drain', () => under.recording.started[0]?.drainedMs !== undefined);
  let reads = 0;
  const query: typeof under.database.query = (...parameters) => {
    reads += 1;
    return under.database.query(...parameters);
  };
  const found = createReplicaFinder(Object.assign(Object.create(under.database), { query })).find(slug);
  found.catch(() => undefined);
  // Without an address, it reads the deployment, and then the addresses again.
  await until('it to wait', () => reads > 2).finally(draining.resolve);
  expect((await found).url).toContain('two.example');
  await stopped;
});

it('deletes a deployment after its replica has drained', async () => {
  await under.addHost('one');
  const { id, slug, latestRevisionId, tracingProjectId } = await under.create('deleted', {
    secrets: [{ name: 'KEY', value: 'value' }],
  });
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  await under.database.execute('INSERT INTO agents.threads (deployment_id, thread_id) VALUES ($1, gen_random_uuid())', [
    id,
  ]);
  await requestDeletion(under.database, under.workspaceId, id, { deletesProject: true });
  await until('its row to be deleted', async () => {
    const rows = await under.database.query('SELECT FROM deployments WHERE id = $1', [id]);
    return rows.length === 0;
  });
  expect(under.recording.started[0]?.drainedMs).toBe(under.config.drainTimeoutMs);
  for (const table of ['deployment_revisions', 'deployment_replicas', 'source_uploads', 'agents.threads'])
    expect(await under.database.query(`SELECT FROM ${table} WHERE deployment_id = $1`, [id])).toEqual([]);
  const [project] = await under.database.query('SELECT deleted_at FROM projects WHERE id = $1', [tracingProjectId]);
  expect(project).toEqual({ deleted_at: expect.any(String) });
  await expect(createReplicaFinder(under.database).find(slug)).rejects.toMatchObject({ code: 'NOT_FOUND' });
});

it('fails a revision whose replicas do not answer in time', async () => {
  await under.addHost('one', {
    driver: {
      start: (_spec, { signal, onLog }) => {
        onLog('waiting for a database');
        return untilAborted(signal);
      },
    },
  });
  const { latestRevisionId: id } = await under.create('stuck');
  const sql = 'SELECT FROM revision_logs WHERE revision_id = $1';
  await until('its log to be stored', async () => (await under.database.query(sql, [id])).length > 0);
  await under.database.execute(
    `UPDATE deployment_revisions SET status_changed_at = now() - interval '1 day' WHERE id = $1`,
    [id],
  );
  expect(await under.awaitReason(id, 'DEPLOY_FAILED')).toMatch(
    /^Its replicas did not answer within \d+ ms\.\nwaiting for a database$/,
  );
});

it('builds at most as many sources at once as the setting allows', async () => {
  let building = 0;
  let most = 0;
  await under.addHost('one', {
    config: { deploymentsDriver: 'process', deploymentsBuildsAtOnce: 1 },
    builder: {
      // Replicas ask for a build too; `build-source.test.ts` limits those.
      async build({ revisionId }) {
        if ((await readStatus(under.database, revisionId)) !== 'BUILDING') return { agentsFile: '/nowhere' };
        building += 1;
        most = Math.max(most, building);
        await new Promise((resolve) => setTimeout(resolve, 100));
        building -= 1;
        return { agentsFile: '/nowhere' };
      },
    },
  });
  const made = await Promise.all(['first', 'second', 'third'].map((name) => under.createBuilt(name)));
  for (const { latestRevisionId } of made) await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  expect(most).toBe(1);
  expect(under.recording.started).toHaveLength(3);
});
