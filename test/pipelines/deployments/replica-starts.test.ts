import { afterEach, expect, it } from 'vitest';
import { addReplicas, claimReplicas, readProgress, recordEnded } from '../../../pipelines/deployments/replicas.ts';
import { updateDeployment } from '../../../pipelines/deployments/write-deployment.ts';
import { forSuite } from '../../for-suite.ts';
import { deferred, untilAborted } from '../../infra/deferred.ts';
import { until } from '../../infra/until.ts';
import { readStatus } from './add-deployment.ts';
import { openHosts } from './open-hosts.ts';
import { createRecordingDriver } from './recording-driver.ts';

/** Replicas whose start hangs or fails for a transient reason, that do not respond, or that move to the next host. */
const under = forSuite(() => openHosts({ deploymentsLeaseMs: 2_000, deploymentsRestartDelayMs: 50 }));
afterEach(() => under.clear());

it('a restart that hangs is a failure, which says so', async () => {
  let hangs = false;
  const { start } = createRecordingDriver(under.recording, 'one');
  await under.addHost('one', {
    driver: { start: (spec, options) => (hangs ? untilAborted(options.signal) : start(spec, options)) },
    config: { deploymentsStartTimeoutMs: 500 },
  });
  const { latestRevisionId } = await under.create('hanging');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  hangs = true;
  under.recording.started[0]?.end('It was killed');
  await until('the restart to fail', async () => {
    const [row] = await under.database.query<{ last_error: string | null }>(
      'SELECT last_error FROM deployment_replicas',
      [],
    );
    return row?.last_error?.startsWith('It did not answer within 500 ms.') === true;
  });
  hangs = false;
  await until('the next start', () => under.recording.started.length === 2);
});

it('a host that stops leaves a replica that outlives it to the next host', async () => {
  under.recording.outlivesHost = true;
  const one = await under.addHost('one');
  const { latestRevisionId } = await under.create('outliving');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  await one.stop();
  expect(under.recording.started).toMatchObject([{ isRunning: true, isDetached: true, drainedMs: undefined }]);
  await under.addHost('two');
  await until('the next host to take it over', () => under.recording.started[1]?.host === 'two');
});

it('a replica that outlives its host drains before it is replaced, because it may be at work', async () => {
  under.recording.outlivesHost = true;
  await under.addHost('one');
  const { latestRevisionId } = await under.create('silent');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  Object.assign(under.recording.started[0] ?? {}, { isRunning: false });
  await until('its replacement', () => under.recording.started.length === 2);
  expect(under.recording.started[0]?.drainedMs).toBe(under.config.drainTimeoutMs);
});

it('a host that stops while a replica starts leaves it to the next host', async () => {
  const starting = deferred();
  let reason: unknown;
  const one = await under.addHost('one', {
    driver: {
      async start(_spec, { signal }) {
        starting.resolve();
        return untilAborted(signal).catch((error: unknown) => {
          reason = error;
          throw error;
        });
      },
    },
  });
  await under.create('starting');
  await starting.promise;
  await one.stop();
  expect(reason).toMatchObject({ code: 'REVISION_TAKEN_OVER' });
});

it('a host that stops drains a replica that is no longer wanted, also one that outlives it', async () => {
  under.recording.outlivesHost = true;
  const one = await under.addHost('one');
  const { id, latestRevisionId } = await under.create('replaced');
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  const draining = deferred();
  under.recording.drained = draining.promise;
  const next = await updateDeployment(under, under.caller, id, {}, { always: true });
  await under.awaitStatus(next.latestRevisionId, 'DEPLOYED');
  await until('the old replica to drain', () => under.recording.started[0]?.drainedMs !== undefined);
  const stopped = one.stop();
  draining.resolve();
  await stopped;
  expect(under.recording.started).toMatchObject([
    { isRunning: false, isDetached: false, drainedMs: under.config.drainTimeoutMs },
    { isRunning: true, isDetached: true },
  ]);
});

it('the time to build on the host of a replica does not count as its start', async () => {
  const isLate = async (revisionId: string) => {
    const sql = `SELECT FROM deployment_revisions WHERE id = $1 AND status = 'DEPLOYING'
      AND status_changed_at < clock_timestamp() - interval '1.5 seconds'`;
    return (await under.database.query(sql, [revisionId])).length === 1;
  };
  await under.addHost('one', {
    config: { deploymentsDriver: 'process', deploymentsStartTimeoutMs: 1_000 },
    builder: {
      async build({ revisionId }) {
        if ((await readStatus(under.database, revisionId)) !== 'BUILDING')
          await until('the revision to wait for longer', () => isLate(revisionId));
        return { agentsFile: '/nowhere' };
      },
    },
  });
  const { latestRevisionId } = await under.createBuilt('built twice');
  await until('the revision to be final', async () =>
    ['DEPLOYED', 'DEPLOY_FAILED'].includes(String(await readStatus(under.database, latestRevisionId))),
  );
  expect(await readStatus(under.database, latestRevisionId)).toBe('DEPLOYED');
});

it('transient failures in a row delay the next start further, and do not fail the revision', async () => {
  const { id: deploymentId, latestRevisionId } = await under.create('delayed');
  const revisionId = String(latestRevisionId);
  await under.database.execute(`UPDATE deployment_revisions SET status = 'DEPLOYING' WHERE id = $1`, [revisionId]);
  await under.database.transaction((tx) => addReplicas(tx, { deploymentId, revisionId, count: 1 }));
  const counted: number[] = [];
  for (const isOwnFailure of [false, false, false, true, false]) {
    const [claim] = await claimReplicas(under.database, { hostId: deploymentId, leaseMs: 60_000 }, 1);
    if (claim === undefined) throw new Error('The replica is not due');
    if (!isOwnFailure && counted.length < 3)
      expect(await readProgress(under.database, revisionId)).toMatchObject({ failures: 0 });
    const computeDelayMs = (failures: number) => {
      counted.push(failures);
      return 0;
    };
    const ended = { reason: 'The engine failed', isOwnFailure, hasAnswered: false, computeDelayMs };
    await recordEnded(under.database, claim, ended);
  }
  expect(counted).toEqual([1, 2, 3, 1, 2]);
});
