import { beforeAll, describe, expect, it } from 'vitest';
import { claimRevision } from '../../../pipelines/deployments/claim-revision.ts';
import {
  changeStatus,
  endUnfinishedRevisions,
  isAllowed,
  isFinal,
  type RevisionStatus,
  revisionStatuses,
  transitions,
} from '../../../pipelines/deployments/states.ts';
import { updateDeployment } from '../../../pipelines/deployments/write-deployment.ts';
import { forSuite } from '../../for-suite.ts';
import { openDeployments, readStatus } from './add-deployment.ts';

const under = forSuite(() => openDeployments());
let revisionId: string;
let deploymentId: string;

beforeAll(async () => {
  const deployment = await under.create('states');
  deploymentId = deployment.id;
  revisionId = String(deployment.latestRevisionId);
});

const setStatus = (status: RevisionStatus) =>
  under.database.execute('UPDATE deployment_revisions SET status = $2, fence = 7 WHERE id = $1', [revisionId, status]);

const readHistory = async () =>
  under.database.query<{ from: string; to: string; reason: string }>(
    `SELECT from_status AS "from", to_status AS "to", reason FROM revision_transitions WHERE revision_id = $1 ORDER BY position`,
    [revisionId],
  );

const pairs = revisionStatuses.flatMap((from) => revisionStatuses.map((to) => [from, to] as const));

describe.each(pairs)('%s to %s', (from, to) => {
  it(isAllowed(from, to) ? 'is committed with its reason' : 'is refused', async () => {
    await setStatus(from);
    const before = (await readHistory()).length;
    const move = () =>
      under.database.transaction((tx) => changeStatus(tx, { revisionId, fence: 7 }, { from, to, reason: 'because' }));
    if (!isAllowed(from, to)) {
      await expect(move()).rejects.toMatchObject({ code: 'INTERNAL' });
      expect(await readStatus(under.database, revisionId)).toBe(from);
      expect(await readHistory()).toHaveLength(before);
      return;
    }
    expect(await move()).toBe(true);
    expect(await readStatus(under.database, revisionId)).toBe(to);
    expect((await readHistory()).slice(before)).toEqual([{ from, to, reason: 'because' }]);
  });
});

it('changes nothing with an old fencing token, or from another status', async () => {
  await setStatus('BUILDING');
  const move = (fence: number, from: RevisionStatus, to: RevisionStatus) =>
    under.database.transaction((tx) => changeStatus(tx, { revisionId, fence }, { from, to, reason: 'late' }));
  expect(await move(6, 'BUILDING', 'AWAITING_DEPLOY')).toBe(false);
  expect(await move(7, 'QUEUED', 'AWAITING_BUILD')).toBe(false);
  expect(await readStatus(under.database, revisionId)).toBe('BUILDING');
});

it.each(revisionStatuses.filter((status) => !isFinal(status)))('a newer revision ends %s', async (status) => {
  await setStatus(status);
  await under.database.transaction((tx) => endUnfinishedRevisions(tx, deploymentId));
  const expected = status === 'BUILDING' || status === 'DEPLOYING' ? 'INTERRUPTED' : 'SKIPPED';
  expect(await readStatus(under.database, revisionId)).toBe(expected);
  const late = { from: status, to: transitions.find(({ from }) => from === status)!.to, reason: 'late' };
  expect(await under.database.transaction((tx) => changeStatus(tx, { revisionId, fence: 7 }, late))).toBe(false);
});

it.each(revisionStatuses.filter(isFinal))('a newer revision leaves %s', async (status) => {
  await setStatus(status);
  await under.database.transaction((tx) => endUnfinishedRevisions(tx, deploymentId));
  expect(await readStatus(under.database, revisionId)).toBe(status);
});

it('gives a revision to one host at a time, and to another one when the lease has expired', async () => {
  const { database } = under;
  await setStatus('QUEUED');
  await database.execute('UPDATE deployment_revisions SET lease_until = NULL, attempts = 0');
  const claim = (hostId: string) => claimRevision(database, { hostId, leaseMs: 60_000 }, { canBuild: true });
  const [one, other] = ['00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000002'] as const;
  const claims = await Promise.all([claim(one), claim(other), claim(one), claim(other)]);
  expect(claims.filter((each) => each !== undefined)).toMatchObject([{ revisionId, status: 'QUEUED', attempts: 1 }]);
  await database.execute(`UPDATE deployment_revisions SET lease_until = now() - interval '1 second'`);
  expect(await claim(other)).toMatchObject({ revisionId, attempts: 2, fence: 9 });
});

it('does not claim what waits for a build slot if the host has none', async () => {
  const { database } = under;
  await setStatus('AWAITING_BUILD');
  await database.execute('UPDATE deployment_revisions SET lease_until = NULL');
  const lease = { hostId: '00000000-0000-4000-8000-000000000001', leaseMs: 60_000 };
  expect(await claimRevision(database, lease, { canBuild: false })).toBeUndefined();
  expect(await claimRevision(database, lease, { canBuild: true })).toMatchObject({ revisionId });
});

it('a change of the source creates a revision, and ends the unfinished one', async () => {
  await setStatus('QUEUED');
  const change = { sourceRevisionConfig: { image_uri: 'registry.example/image:2' } };
  const changed = await updateDeployment(under, under.caller, deploymentId, change, { always: false });
  expect(changed.latestRevisionId).not.toBe(revisionId);
  expect(await readStatus(under.database, revisionId)).toBe('SKIPPED');
  const same = await updateDeployment(under, under.caller, deploymentId, { sourceConfig: {} }, { always: false });
  expect(same.latestRevisionId).toBe(changed.latestRevisionId);
  const forced = await updateDeployment(under, under.caller, deploymentId, {}, { always: true });
  expect(forced.latestRevisionId).not.toBe(changed.latestRevisionId);
});

it('keeps the newest 100 revisions, and the one that serves', async () => {
  const { database } = under;
  const { id, latestRevisionId: first } = await under.create('many-revisions');
  await database.execute('UPDATE deployments SET active_revision_id = $2 WHERE id = $1', [id, first]);
  await database.execute(
    `INSERT INTO deployment_revisions (id, deployment_id, workspace_id, number, source, source_config, source_revision_config, status)
     SELECT gen_random_uuid(), deployment_id, workspace_id, n, source, source_config, source_revision_config, 'SKIPPED'
     FROM deployment_revisions, generate_series(2, 104) AS n WHERE id = $1`,
    [first],
  );
  await updateDeployment(under, under.caller, id, {}, { always: true });
  const numbers = await database.query<{ number: number }>(
    'SELECT number FROM deployment_revisions WHERE deployment_id = $1 ORDER BY number',
    [id],
  );
  expect(numbers.map(({ number }) => number)).toEqual([1, ...Array.from({ length: 100 }, (_, index) => index + 6)]);
});

it('only an image has an address of its own, which is a URL', async () => {
  const change = (custom_url: string) =>
    updateDeployment(under, under.caller, deploymentId, { sourceConfig: { custom_url } }, { always: false });
  for (const url of ['javascript:alert(1)', 'trips.example', 'https://me:token@trips.example'])
    await expect(change(url)).rejects.toMatchObject({ code: 'DEPLOYMENT_INVALID' });
  const { slug, sourceConfig } = await change('https://trips.example/agents');
  expect(sourceConfig.custom_url).toBe('https://trips.example/agents');
  const sentBack = await change(`https://runlake.example/deployments/${slug}`);
  expect(sentBack.sourceConfig.custom_url).toBe('https://trips.example/agents');
});
