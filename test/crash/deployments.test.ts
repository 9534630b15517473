/** SIGKILL of everything at each transition of a revision: the next start continues, and each replica runs once. */
import { describe, expect, test } from 'vitest';
import { transitions } from '../../pipelines/deployments/states.ts';
import { echoSource } from '../api/control-plane/deployment-client.ts';
import { askRunlake } from '../ask-runlake.ts';
import { forSuite } from '../for-suite.ts';
import { pickSome } from '../house/extent.ts';
import { KilledDeployments } from './killed-deployments.ts';

const under = forSuite(() => KilledDeployments.start());

const statuses = ['QUEUED', 'AWAITING_BUILD', 'BUILDING', 'AWAITING_DEPLOY', 'DEPLOYING', 'DEPLOYED'];

describe.each(pickSome(statuses, 1 / 2))('kill -9 before the transition to %s is committed', (status) => {
  test('the next start continues with the revision, and starts its replica once', async () => {
    const name = `killed at ${status}`;
    let id = '';
    await under.killAt(status, async () => {
      const made = await under.client.create(name);
      id = made.id;
      await under.client.push(id, echoSource(name));
    });
    const { body: found } = await under.client.ask('GET', `/v2/deployments/${id}`);
    const revision = await under.client.awaitDeployed(id, found.latest_revision_id);
    const history: { from_status: string | null; to_status: string }[] = revision.transitions;
    expect(history.map(({ to_status }) => to_status)).toEqual(['CREATING', ...statuses]);
    for (const [index, { from_status, to_status }] of history.entries()) {
      if (index === 0) continue;
      expect(transitions.some(({ from, to }) => from === from_status && to === to_status)).toBe(true);
      expect(from_status).toBe(history[index - 1]?.to_status);
    }
    const replicas = await under.withDatabase((database) =>
      database.query<{ url: string }>('SELECT url FROM deployment_replicas WHERE deployment_id = $1', [id]),
    );
    expect(replicas).toHaveLength(1);
    const replica = { url: String(replicas[0]?.url), apiKey: under.runlake.apiKey };
    const body = { assistant_id: 'echo', input: { said: 'hello' } };
    expect(await askRunlake(replica, '/runs/wait', { body })).toMatchObject({ reply: name });
  }, 180_000);
});
