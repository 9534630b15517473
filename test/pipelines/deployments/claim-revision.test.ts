import { randomUUID } from 'node:crypto';
import { beforeAll, beforeEach, expect, it } from 'vitest';
import { advanceRevision } from '../../../pipelines/deployments/advance-revision.ts';
import { claimRevision, releaseRevision } from '../../../pipelines/deployments/claim-revision.ts';
import { addOrganization, type OrganizationUnderTest } from '../../api/start-api.ts';
import { forSuite } from '../../for-suite.ts';
import { type DeploymentsUnderTest, openDeployments, readStatus } from './add-deployment.ts';

const under = forSuite(() => openDeployments({ deploymentsDriver: 'process' }));
let organizations: Record<'one' | 'other', OrganizationUnderTest>;
const host = { hostId: randomUUID(), leaseMs: 60_000 };

beforeAll(async () => {
  organizations = { one: under.organization, other: await addOrganization(under.database, 'other') };
});
beforeEach(() => under.database.execute('DELETE FROM deployments'));

function add(name: string, of: 'one' | 'other', workspace: 0 | 1) {
  const { id: organizationId, workspaceIds } = organizations[of];
  const caller = { organizationId, workspaceId: workspaceIds[workspace] } as DeploymentsUnderTest['caller'];
  return under.createBuilt(name, 'dev', caller);
}

/** Creates a deployment whose revision waits for a build. */
async function addWaiting(name: string, of: 'one' | 'other', workspace: 0 | 1 = 0): Promise<void> {
  const { latestRevisionId } = await add(name, of, workspace);
  await under.database.execute(`UPDATE deployment_revisions SET status = 'AWAITING_BUILD' WHERE id = $1`, [
    latestRevisionId,
  ]);
}

const claim = (canBuild = true) => claimRevision(under.database, host, { canBuild });

async function readName(claimed: Awaited<ReturnType<typeof claim>>): Promise<string | undefined> {
  const [row] = await under.database.query<{ name: string }>('SELECT name FROM deployments WHERE id = $1', [
    claimed?.deploymentId,
  ]);
  return row?.name;
}

it('gives the next build slot to the organisation with the fewest builds', async () => {
  for (const name of ['1', '2', '3', '4']) await addWaiting(name, 'one', name === '1' ? 0 : 1);
  for (const name of ['5', '6']) await addWaiting(name, 'other');
  const names = [];
  for (let count = 0; count < 5; count += 1) names.push(await readName(await claim()));
  expect([names.slice(0, 2).sort(), names.slice(2, 4).sort(), names[4]]).toEqual([['1', '5'], ['2', '6'], '3']);
  await addWaiting('7', 'other');
  expect(await readName(await claim())).toBe('7');
});

it('gives a single build slot to each of the organisations that wait', async () => {
  await addWaiting('1', 'one');
  await addWaiting('2', 'other');
  const names = new Set<string | undefined>();
  for (let count = 0; count < 100 && names.size < 2; count += 1) {
    const claimed = await claim();
    names.add(await readName(claimed));
    if (claimed) await releaseRevision(under.database, claimed, { isAttempt: false });
  }
  expect([...names].sort()).toEqual(['1', '2']);
});

it('does not count builds of killed hosts', async () => {
  await addWaiting('1', 'one');
  await claim();
  await addWaiting('2', 'other');
  await claim();
  await addWaiting('3', 'other');
  await under.database.execute(
    `UPDATE deployment_revisions AS r SET lease_until = now() - interval '1 second'
     FROM deployments AS d WHERE d.id = r.deployment_id AND d.name = '1'`,
  );
  expect(await readName(await claim())).toBe('1');
});

it('claims other work in the order of its creation', async () => {
  await addWaiting('1', 'one');
  await claim();
  for (const name of ['2', '3']) await addWaiting(name, name === '2' ? 'one' : 'other');
  await under.database.execute(`UPDATE deployment_revisions SET status = 'DEPLOYING' WHERE lease_until IS NULL`);
  expect([await readName(await claim(false)), await readName(await claim(false))]).toEqual(['2', '3']);
});

it('does not build a new revision before its turn', async () => {
  const { latestRevisionId } = await add('new', 'one', 0);
  const claimed = await claim();
  const builder = { build: () => expect.unreachable(), deleteExcept: async () => {}, close: async () => {} };
  const options = { signal: new AbortController().signal, takeBuildSlot: () => true };
  if (claimed) await advanceRevision({ ...under, builder }, claimed, options);
  expect(await readStatus(under.database, latestRevisionId)).toBe('AWAITING_BUILD');
});
