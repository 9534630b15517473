/** SIGKILL of everything at each transition of a revision: the next start continues, and each replica runs once. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Database, openDatabase } from '../../infra/postgres/pool.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import { transitions } from '../../pipelines/deployments/states.ts';
import { DeploymentClient, echoSource } from '../api/control-plane/deployment-client.ts';
import { until } from '../infra/until.ts';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';

let runlake: RunlakeProcess;
let client: DeploymentClient;

beforeAll(async () => {
  runlake = await startRunlake();
  client = new DeploymentClient(runlake.url, runlake.apiKey);
  await withDatabase(installGate);
}, 120_000);
afterAll(() => runlake?.remove());

async function withDatabase<Result>(work: (database: Database) => Promise<Result>): Promise<Result> {
  const logger = createLogger('silent', 'test');
  const database = openDatabase({ url: runlake.stores().databaseUrl, logger, timeoutMs: 120_000 });
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}

/** Transitions wait inside their transaction for the advisory lock of their status, which a test may hold. */
async function installGate(database: Database): Promise<void> {
  await database.execute(`CREATE FUNCTION hold_transition() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_advisory_xact_lock(1984, hashtext(NEW.to_status)); RETURN NEW; END $$`);
  await database.execute(`CREATE TRIGGER hold_transition BEFORE INSERT ON revision_transitions
    FOR EACH ROW EXECUTE FUNCTION hold_transition()`);
}

/** Kills everything while a transition to `status` is about to be committed. Resolves after the next start. */
async function killAt(status: string, create: () => Promise<void>): Promise<void> {
  let isHeld = (): void => undefined;
  const held = new Promise<void>((resolve) => {
    isHeld = resolve;
  });
  const holding = withDatabase((database) =>
    database.transaction(async (tx) => {
      await tx.query('SELECT pg_advisory_xact_lock(1984, hashtext($1))', [status]);
      isHeld();
      await until(`a transition to ${status}`, async () => {
        const waiting = await tx.query(
          `SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 1984 AND NOT granted`,
        );
        return waiting.length > 0;
      });
      await runlake.kill();
    }),
  ).catch(() => undefined);
  await held;
  await create();
  await holding;
  runlake = await runlake.restart();
  client = new DeploymentClient(runlake.url, runlake.apiKey);
}

const statuses = ['QUEUED', 'AWAITING_BUILD', 'BUILDING', 'AWAITING_DEPLOY', 'DEPLOYING', 'DEPLOYED'];

describe.each(statuses)('kill -9 before the transition to %s is committed', (status) => {
  test('the next start continues with the revision, and starts its replica once', async () => {
    const name = `killed at ${status}`;
    let id = '';
    await killAt(status, async () => {
      const made = await client.create(name);
      id = made.id;
      await client.push(id, echoSource(name));
    });
    const { body: found } = await client.ask('GET', `/v2/deployments/${id}`);
    const revision = await client.awaitDeployed(id, found.latest_revision_id);
    const history: { from_status: string | null; to_status: string }[] = revision.transitions;
    expect(history.map(({ to_status }) => to_status)).toEqual(['CREATING', ...statuses]);
    for (const [index, { from_status, to_status }] of history.entries()) {
      if (index === 0) continue;
      expect(transitions.some(({ from, to }) => from === from_status && to === to_status)).toBe(true);
      expect(from_status).toBe(history[index - 1]?.to_status);
    }
    const replicas = await withDatabase((database) =>
      database.query<{ url: string }>('SELECT url FROM deployment_replicas WHERE deployment_id = $1', [id]),
    );
    expect(replicas).toHaveLength(1);
    const response = await fetch(`${replicas[0]?.url}/runs/wait`, {
      method: 'POST',
      headers: { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' },
      body: JSON.stringify({ assistant_id: 'echo', input: { said: 'hello' } }),
    });
    expect(await response.json()).toMatchObject({ reply: name });
  }, 180_000);
});

test('kill -9 during an update: the previous revision serves, and the update is then completed', async () => {
  const first = await client.deploy('updated', echoSource('first'));
  await client.awaitDeployed(first.id, first.latest_revision_id);
  await killAt('DEPLOYED', async () => void (await client.push(first.id, echoSource('second'))));
  const { body: found } = await client.ask('GET', `/v2/deployments/${first.id}`);
  expect(found.active_revision_id).not.toBeNull();
  await client.awaitDeployed(first.id, found.latest_revision_id);
  await until('only the replica of the new revision', async () => {
    const rows = await withDatabase((database) =>
      database.query<{ revision_id: string }>('SELECT revision_id FROM deployment_replicas WHERE deployment_id = $1', [
        first.id,
      ]),
    );
    return rows.length === 1 && rows[0]?.revision_id === found.latest_revision_id;
  });
}, 180_000);

test('kill -9 during a deletion: the next start completes it', async () => {
  const made = await client.deploy('deleted', echoSource('deleted'));
  await client.awaitDeployed(made.id, made.latest_revision_id);
  await client.ask('DELETE', `/v2/deployments/${made.id}`);
  runlake = await runlake.restart();
  client = new DeploymentClient(runlake.url, runlake.apiKey);
  await until(
    'it to be deleted',
    async () => (await client.ask('GET', `/v2/deployments/${made.id}`)).status === 404,
    60_000,
  );
}, 180_000);
