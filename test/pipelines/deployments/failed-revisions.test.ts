import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Builder } from '../../../pipelines/deployments/build/build-source.ts';
import { type Host, startHost } from '../../../pipelines/deployments/host.ts';
import { createDeployment } from '../../../pipelines/deployments/write-deployment.ts';
import { deferred } from '../../infra/deferred.ts';
import { until } from '../../infra/until.ts';
import { type DeploymentsUnderTest, openDeployments, readStatus } from './add-deployment.ts';
import { createRecordingDriver, type Recording } from './recording-driver.ts';

/** Revisions whose failure Postgres cannot store, and those that a host claims while it stops. */
let under: DeploymentsUnderTest;
let recording: Recording;
let hosts: Host[];

async function addHost(build: Builder['build'], parts: Partial<DeploymentsUnderTest> = {}): Promise<Host> {
  const host = await startHost(
    {
      ...{ ...under, ...parts },
      builder: { build, deleteExcept: async () => undefined, close: async () => undefined },
      driver: createRecordingDriver(recording, 'one'),
      sourceStore: { open: async () => ({}) as never, close: async () => undefined },
      enqueueProjectDeletion: async () => undefined,
    },
    { isOnlyHost: false },
  );
  hosts.push(host);
  return host;
}

/** Creates a deployment that is built. */
const createBuilt = (name: string) =>
  createDeployment({ ...under, config: { ...under.config, deploymentsDriver: 'process' } }, under.caller, {
    ...{ name, source: 'github', secrets: [], secretReferences: [] },
    sourceConfig: { repo_url: 'https://example.com/repo.git' },
    sourceRevisionConfig: { repo_ref: 'main' },
  });

async function readReason(revisionId: string | null, status: string): Promise<string | undefined> {
  await until(`revision ${status}`, async () => (await readStatus(under.database, revisionId)) === status);
  const [transition] = await under.database.query<{ reason: string }>(
    'SELECT reason FROM revision_transitions WHERE revision_id = $1 AND to_status = $2',
    [revisionId, status],
  );
  return transition?.reason;
}

beforeAll(async () => {
  under = await openDeployments({
    deploymentsDriver: 'process',
    deploymentsTickMs: 50,
    deploymentsLeaseMs: 2_000,
    deploymentsRestartDelayMs: 50,
    deploymentsSwitchMs: 0,
  });
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

it('a build fails with a reason that contains a NUL character', async () => {
  await addHost(async (_revision, { onLog }) => {
    onLog('Reading\0 the file');
    throw runlakeError('BUILD_FAILED', { reason: `it is not JSON: "{\0\ud800"\n\u001b[2Jand no text` });
  });
  const { latestRevisionId } = await createBuilt('utf-16');
  const reason = await readReason(latestRevisionId, 'BUILD_FAILED');
  expect(reason).toContain('it is not JSON: "{\ufffd"\n[2Jand no text');
  expect(reason).toContain('\nReading the file');
});

it('a replica fails with a reason that contains a NUL character', async () => {
  recording.failing.add('utf-16');
  recording.failure = 'The graph\0 is broken\ud800';
  await addHost(async () => ({ agentsFile: '/nowhere' }));
  const { latestRevisionId } = await createBuilt('utf-16');
  expect(await readReason(latestRevisionId, 'DEPLOY_FAILED')).toContain('The graph is broken\ufffd');
});

it('a build whose result Postgres refuses fails after three attempts', async () => {
  let builds = 0;
  await addHost(async () => {
    builds += 1;
    return { agentsFile: '/nowhere', commit: 'no\0commit' };
  });
  const { latestRevisionId } = await createBuilt('refused');
  expect(await readReason(latestRevisionId, 'BUILD_FAILED')).toContain('3 attempts');
  expect(builds).toBe(3);
});

it('a host does not work on a revision whose claim returns while it stops', async () => {
  const { latestRevisionId } = await createBuilt('claimed late');
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
