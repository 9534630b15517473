import { afterEach, expect, it } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Builder } from '../../../pipelines/deployments/build/build-source.ts';
import { forSuite } from '../../for-suite.ts';
import { deferred } from '../../infra/deferred.ts';
import { type HostParts, openHosts } from './open-hosts.ts';

/** Revisions whose failure Postgres cannot store, and those that a host claims while it stops. */
const under = forSuite(() =>
  openHosts({ deploymentsDriver: 'process', deploymentsLeaseMs: 2_000, deploymentsRestartDelayMs: 50 }),
);
afterEach(() => under.clear());

const addHost = (build: Builder['build'], parts: HostParts = {}) =>
  under.addHost('one', { builder: { build }, ...parts });

it('a build fails with a reason that contains a NUL character', async () => {
  await addHost(async (_revision, { onLog }) => {
    onLog('Reading\0 the file');
    throw runlakeError('BUILD_FAILED', { reason: `it is not JSON: "{\0\ud800"\n\u001b[2Jand no text` });
  });
  const { latestRevisionId } = await under.createBuilt('utf-16');
  const reason = await under.awaitReason(latestRevisionId, 'BUILD_FAILED');
  expect(reason).toContain('it is not JSON: "{\ufffd"\n[2Jand no text');
  expect(reason).toContain('\nReading the file');
});

it('a replica fails with a reason that contains a NUL character', async () => {
  under.recording.failing.add('utf-16');
  under.recording.failure = 'The graph\0 is broken\ud800';
  await under.addHost('one');
  const { latestRevisionId } = await under.createBuilt('utf-16');
  expect(await under.awaitReason(latestRevisionId, 'DEPLOY_FAILED')).toContain('The graph is broken\ufffd');
});

it('a build whose result Postgres refuses fails after three attempts', async () => {
  let builds = 0;
  await addHost(async () => {
    builds += 1;
    return { agentsFile: '/nowhere', commit: 'no\0commit' };
  });
  const { latestRevisionId } = await under.createBuilt('refused');
  expect(await under.awaitReason(latestRevisionId, 'BUILD_FAILED')).toContain('3 attempts');
  expect(builds).toBe(3);
});

it('a host does not work on a revision whose claim returns while it stops', async () => {
  const { latestRevisionId } = await under.createBuilt('claimed late');
  const [claimed, stopping] = [deferred(), deferred()];
  const query: typeof under.database.query = async (sql, ...rest) => {
    const rows = await under.database.query<never>(sql, ...rest);
    if (sql.includes('UPDATE deployment_revisions AS r SET host_id')) {
      claimed.resolve();
      await stopping.promise;
    }
    return rows;
  };
  const database = Object.assign(Object.create(under.database), { query });
  let builds = 0;
  const host = await addHost(
    async () => {
      builds += 1;
      return { agentsFile: '/nowhere' };
    },
    { database },
  );
  await claimed.promise;
  const stopped = host.stop();
  stopping.resolve();
  await stopped;
  expect(builds).toBe(0);
  const [row] = await under.database.query(
    'SELECT status, lease_until, attempts FROM deployment_revisions WHERE id = $1',
    [latestRevisionId],
  );
  expect(row).toEqual({ status: 'CREATING', lease_until: null, attempts: 0 });
});
