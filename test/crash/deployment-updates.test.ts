/** SIGKILL of everything while a deployment is updated or deleted, or its update fails: the next start completes it. */
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { echoSource } from '../api/control-plane/deployment-client.ts';
import { folderForTest } from '../folders.ts';
import { forSuite } from '../for-suite.ts';
import { until } from '../infra/until.ts';
import { KilledDeployments } from './killed-deployments.ts';

const under = forSuite(() => KilledDeployments.start());

/** Sends a run to a deployment through the proxy. */
async function invoke(slug: string) {
  const { url, apiKey } = under.runlake;
  const response = await fetch(`${url}/deployments/${slug}/runs/wait`, {
    method: 'POST',
    headers: { 'x-api-key': apiKey, 'content-type': 'application/json' },
    body: JSON.stringify({ assistant_id: 'echo', input: { said: 'hello' } }),
  });
  return { status: response.status, body: await response.json() };
}

const listPassed = ({ transitions }: { transitions: { to_status: string }[] }) =>
  transitions.map(({ to_status }) => to_status);

const failures = [
  ['BUILD_FAILED', echoSource('never'), 'exit 3'],
  ['DEPLOY_FAILED', { ...echoSource('never'), 'echo.js': 'throw new Error("broken at import");' }, 'true'],
] as const;
test.each(failures)(
  'kill -9 before the transition to %s is committed: it fails once, and the previous revision serves',
  async (status, files, build_command) => {
    const slug = `killed-${status.toLowerCase().replace('_', '-')}`;
    const first = await under.client.deploy(slug, echoSource('first'));
    await under.client.awaitDeployed(first.id, first.latest_revision_id);
    await under.killAt(
      status,
      async () => void (await under.client.push(first.id, files, { source_config: { build_command } })),
    );
    const { body: found } = await under.client.ask('GET', `/v2/deployments/${first.id}`);
    const failed = await under.client.awaitEnd(first.id, found.latest_revision_id);
    expect(failed.status).toBe(status);
    const passed = listPassed(failed);
    expect(new Set(passed).size).toBe(passed.length);
    expect(found.active_revision_id).toBe(first.latest_revision_id);
    await until('the previous revision', async () => (await invoke(slug)).status === 200);
    expect(await invoke(slug)).toMatchObject({ body: { reply: 'first' } });
  },
  180_000,
);

test('kill -9 before the transition to CREATE_FAILED is committed: it fails once, and the previous revision serves', async () => {
  const first = await under.client.deploy('killed-create-failed', echoSource('first'));
  await under.client.awaitDeployed(first.id, first.latest_revision_id);
  await under.killAt('CREATE_FAILED', async () => {
    // As if its secrets had been sealed with a key that is lost.
    await under.withDatabase(async (database) => {
      await database.execute(
        `CREATE FUNCTION lose_key() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN NEW.sealed_secrets = 'unknown'; RETURN NEW; END $$`,
      );
      await database.execute(
        'CREATE TRIGGER lose_key BEFORE INSERT ON deployment_revisions FOR EACH ROW EXECUTE FUNCTION lose_key()',
      );
    });
    await under.client.push(first.id, echoSource('never'));
  });
  await under.withDatabase((database) => database.execute('DROP FUNCTION lose_key CASCADE'));
  const { body: found } = await under.client.ask('GET', `/v2/deployments/${first.id}`);
  const failed = await under.client.awaitEnd(first.id, found.latest_revision_id);
  expect(listPassed(failed)).toEqual(['CREATING', 'CREATE_FAILED']);
  expect(found.active_revision_id).toBe(first.latest_revision_id);
  await until('the previous revision', async () => (await invoke('killed-create-failed')).status === 200);
  expect(await invoke('killed-create-failed')).toMatchObject({ body: { reply: 'first' } });
}, 180_000);

test('kill -9 before a waiting revision is skipped: it waits on, until a newer one is committed', async () => {
  const folder = folderForTest();
  chmodSync(folder, 0o755);
  const build_command = `until [ -e ${folder}/go ]; do sleep 0.1; done`;
  // Takes all build slots, so that the next revision waits.
  const busy = [];
  for (let slot = 0; slot < 2; slot += 1) {
    const made = await under.client.create(`busy ${slot}`, { sourceConfig: { build_command } });
    busy.push({ id: made.id, ...(await under.client.push(made.id, echoSource('busy'))) });
  }
  const made = await under.client.create('skipped');
  const { latest_revision_id: id } = await under.client.push(made.id, echoSource('waiting'));
  const path = `/v2/deployments/${made.id}/revisions/${id}`;
  await until('it to wait', async () => (await under.client.ask('GET', path)).body.status === 'AWAITING_BUILD');
  await under.killAt(
    'SKIPPED',
    async () => void (await under.client.push(made.id, echoSource('lost')).catch(() => undefined)),
  );
  const { body: found } = await under.client.ask('GET', `/v2/deployments/${made.id}`);
  expect(found.latest_revision_id).toBe(id);
  const { latest_revision_id: newer } = await under.client.push(made.id, echoSource('newer'));
  const skipped = await under.client.awaitEnd(made.id, id);
  expect(listPassed(skipped)).toEqual(['CREATING', 'QUEUED', 'AWAITING_BUILD', 'SKIPPED']);
  writeFileSync(join(folder, 'go'), '');
  await under.client.awaitDeployed(made.id, newer);
  expect(await invoke('skipped')).toMatchObject({ body: { reply: 'newer' } });
}, 180_000);

test('kill -9 before a newer revision is committed: the one that was being built continues', async () => {
  const folder = folderForTest();
  chmodSync(folder, 0o755);
  const build_command = `until [ -e ${folder}/go ]; do sleep 0.1; done`;
  const made = await under.client.create('interrupted', { sourceConfig: { build_command } });
  const { latest_revision_id: id } = await under.client.push(made.id, echoSource('built'));
  const path = `/v2/deployments/${made.id}/revisions/${id}`;
  await until('the build', async () => (await under.client.ask('GET', path)).body.status === 'BUILDING');
  await under.killAt(
    'INTERRUPTED',
    async () => void (await under.client.push(made.id, echoSource('lost')).catch(() => undefined)),
  );
  writeFileSync(join(folder, 'go'), '');
  const passed = listPassed(await under.client.awaitDeployed(made.id, id));
  expect(passed).toEqual([
    ...['CREATING', 'QUEUED', 'AWAITING_BUILD', 'BUILDING', 'AWAITING_DEPLOY', 'DEPLOYING', 'DEPLOYED'],
  ]);
  const { body: found } = await under.client.ask('GET', `/v2/deployments/${made.id}`);
  expect(found.latest_revision_id).toBe(id);
  expect(await invoke('interrupted')).toMatchObject({ body: { reply: 'built' } });
}, 180_000);

test('kill -9 during an update: the previous revision serves, and the update is then completed', async () => {
  const first = await under.client.deploy('updated', echoSource('first'));
  await under.client.awaitDeployed(first.id, first.latest_revision_id);
  await under.killAt('DEPLOYED', async () => void (await under.client.push(first.id, echoSource('second'))));
  const { body: found } = await under.client.ask('GET', `/v2/deployments/${first.id}`);
  expect(found.active_revision_id).not.toBeNull();
  await under.client.awaitDeployed(first.id, found.latest_revision_id);
  await until('only the replica of the new revision', async () => {
    const rows = await under.withDatabase((database) =>
      database.query<{ revision_id: string }>('SELECT revision_id FROM deployment_replicas WHERE deployment_id = $1', [
        first.id,
      ]),
    );
    return rows.length === 1 && rows[0]?.revision_id === found.latest_revision_id;
  });
}, 180_000);

test('kill -9 during a deletion: the next start completes it', async () => {
  const made = await under.client.deploy('deleted', echoSource('deleted'));
  await under.client.awaitDeployed(made.id, made.latest_revision_id);
  await under.client.ask('DELETE', `/v2/deployments/${made.id}`);
  await under.restart();
  await until(
    'it to be deleted',
    async () => (await under.client.ask('GET', `/v2/deployments/${made.id}`)).status === 404,
    60_000,
  );
}, 180_000);
