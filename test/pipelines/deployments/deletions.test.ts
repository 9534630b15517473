import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { requestDeletion } from '../../../pipelines/deployments/request-deletion.ts';
import { forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';
import { type HostParts, openHosts } from './open-hosts.ts';

/** What fails for one deployment neither blocks the others nor the rest of the work of a host, and is tried again. */
const under = forSuite(() => openHosts({ deploymentsLeaseMs: 1_000, deploymentsRestartDelayMs: 200 }));
/** Paths of sources that cannot be deleted, and the number of attempts. */
let attempts: Map<string, number>;
let undeletable: Set<string>;

beforeEach(() => {
  attempts = new Map();
  undeletable = new Set();
});
afterEach(() => under.clear());

const addHost = (parts: HostParts = {}) =>
  under.addHost('one', {
    async deleteSource(path) {
      attempts.set(path, (attempts.get(path) ?? 0) + 1);
      if (undeletable.has(path)) throw new Error('The bucket denies it');
    },
    ...parts,
  });

async function addDeployed(name: string): Promise<string> {
  const { id, latestRevisionId } = await under.create(name);
  await under.awaitStatus(latestRevisionId, 'DEPLOYED');
  return id;
}

async function addUpload(deploymentId: string, expiry = 'now()'): Promise<string> {
  const path = `${under.workspaceId}/${randomUUID()}.tar.gz`;
  await under.database.execute(
    `INSERT INTO source_uploads (id, deployment_id, workspace_id, object_path, expires_at)
     VALUES (gen_random_uuid(), $1, $2, $3, ${expiry})`,
    [deploymentId, under.workspaceId, path],
  );
  return path;
}

const remove = (id: string) => requestDeletion(under.database, under.workspaceId, id, { deletesProject: false });
const isDeleted = async (id: string) =>
  (await under.database.query('SELECT FROM deployments WHERE id = $1', [id])).length === 0;

it('more failed deletions than a host works on at once do not block later ones, and are retried with backoff', async () => {
  const failing: { readonly id: string; readonly path: string }[] = [];
  for (let index = 0; index < 12; index += 1) {
    const { id } = await under.create(`failing ${index}`);
    const path = await addUpload(id, `now() + interval '1 day'`);
    undeletable.add(path);
    failing.push({ id, path });
    await remove(id);
  }
  const { id: later } = await under.create('later');
  await remove(later);
  await addHost();
  await until('the later deletion', () => isDeleted(later));
  await until('a third attempt', () => failing.every(({ path }) => (attempts.get(path) ?? 0) >= 3));
  expect(await Promise.all(failing.map(({ id }) => isDeleted(id)))).not.toContain(true);
  // With a tick of 50 ms and without backoff, there would be many more attempts than the doubled delays allow.
  for (const { path } of failing) expect(attempts.get(path)).toBeLessThan(6);
  undeletable.clear();
  await until('the other deletions', async () =>
    (await Promise.all(failing.map(({ id }) => isDeleted(id)))).every(Boolean),
  );
});

it('deletes the tracing project that had the name of the deployment at the request', async () => {
  const { database, workspaceId, projects } = under;
  const { id, tracingProjectId } = await under.create('traced');
  await database.execute(`UPDATE projects SET name = 'former' WHERE id = $1`, [tracingProjectId]);
  projects.forget();
  const current = await projects.resolve({ workspaceId: String(workspaceId), sessionName: 'traced', isPatch: false });
  await requestDeletion(database, String(workspaceId), id, { deletesProject: true });
  await database.execute(`UPDATE projects SET name = 'renamed' WHERE id = $1`, [current]);
  projects.forget();
  await projects.resolve({ workspaceId: String(workspaceId), sessionName: 'traced', isPatch: false });
  await addHost();
  await until('the deletion', () => isDeleted(id));
  const deleted = await database.query<{ id: string }>('SELECT id FROM projects WHERE deleted_at IS NOT NULL');
  expect(deleted).toEqual([{ id: current }]);
});

it('a replica that cannot be stopped delays the deletion of its deployment only', async () => {
  await addHost();
  const stuck = await addDeployed('stuck');
  const other = await addDeployed('other');
  under.recording.unstoppable.add('stuck');
  await remove(stuck);
  await until('an attempt to stop it', () => under.recording.started[0]?.drainedMs !== undefined);
  await remove(other);
  await until('the other deletion', () => isDeleted(other));
  const next = await addDeployed('next');
  expect(await isDeleted(stuck)).toBe(false);
  under.recording.unstoppable.clear();
  await until('the deletion', () => isDeleted(stuck));
  expect(under.recording.started[0]?.isRunning).toBe(false);
  expect(await isDeleted(next)).toBe(false);
});

it('a replica that ended and cannot be removed is started again', async () => {
  await addHost();
  await addDeployed('ended');
  under.recording.unstoppable.add('ended');
  under.recording.started[0]?.end('It was killed');
  await until('a second start', () => under.recording.started.length === 2);
});

it('a host that stops does not wait for a replica that cannot be stopped', async () => {
  const host = await addHost();
  const id = await addDeployed('stuck');
  under.recording.unstoppable.add('stuck');
  await remove(id);
  await until('an attempt to stop it', () => under.recording.started[0]?.drainedMs !== undefined);
  await host.stop();
  const held = await under.database.query('SELECT FROM deployment_replicas WHERE lease_until IS NOT NULL');
  expect(held).toEqual([]);
});

it.each([
  ['deployment_replicas', 1, 'NEW.lease_until IS NULL AND OLD.lease_until IS NOT NULL'],
  // The first step and the release after it.
  ['deployment_revisions', 2, `OLD.status = 'CREATING' AND (NEW.status = 'QUEUED' OR NEW.lease_until IS NULL)`],
])('a lease of %s that could not be released expires, and the work continues', async (table, refusals, condition) => {
  await under.database.execute(`CREATE SEQUENCE updates`);
  await under.database.execute(
    `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       IF nextval('updates') <= ${refusals} THEN RAISE EXCEPTION 'the disk is full' USING ERRCODE = '53100'; END IF;
       RETURN NEW; END $$`,
  );
  await under.database.execute(
    `CREATE TRIGGER refuse BEFORE UPDATE ON ${table} FOR EACH ROW WHEN (${condition}) EXECUTE FUNCTION refuse()`,
  );
  try {
    await addHost();
    await addDeployed('released late');
    under.recording.started[0]?.end('It was killed');
    await until('a second start', () => under.recording.started.length === 2);
    const [{ count } = { count: 0 }] = await under.database.query<{ count: number }>(
      'SELECT (CASE WHEN is_called THEN last_value ELSE 0 END)::int AS count FROM updates',
    );
    expect(count).toBeGreaterThanOrEqual(refusals);
  } finally {
    await under.database.execute('DROP FUNCTION refuse CASCADE');
    await under.database.execute('DROP SEQUENCE updates');
  }
});

it('each step of a clean-up runs, also after one that fails', async () => {
  const { id } = await under.create('kept');
  const refused = await addUpload(id, `now() - interval '2 hours'`);
  const unused = await addUpload(id, `now() - interval '1 hour'`);
  undeletable.add(refused);
  await addHost({ builder: { deleteExcept: async () => Promise.reject(new Error('The disk is read-only')) } });
  await until('the removal of replicas', () => under.recording.needed.length > 0);
  await until('the deletion of the other upload', async () => {
    const rows = await under.database.query<{ path: string; isPostponed: boolean }>(
      'SELECT object_path AS path, expires_at > now() AS "isPostponed" FROM source_uploads',
    );
    return rows.every(({ path }) => path !== unused) && rows.every(({ isPostponed }) => isPostponed);
  });
  expect(attempts.get(refused)).toBe(1);
});
