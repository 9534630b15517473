import { expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';
import { startGitServer } from '../../pipelines/deployments/git-server.ts';
import { startRunlake } from '../../runlake-process.ts';
import { testSettings } from '../../test-settings.ts';
import { type Answer, DeploymentClient, echoSource, linkPackages } from './deployment-client.ts';

/** Deployments from a git repository, and updates of deployments that execute runs, on a whole Runlake process. */
const environment = { RUNLAKE_ALLOW_PRIVATE_ENDPOINTS: 'true', ...testSettings({ drainTimeoutMs: 1_000 }) };
const git = forSuite(startGitServer);
const runlake = forSuite(() => startRunlake({ environment }));
const client = forSuite(() => new DeploymentClient(runlake.url, runlake.apiKey));

const ask = async (slug: string, path: string, body: object): Promise<Answer> => {
  const response = await fetch(`${runlake.url}/deployments/${slug}${path}`, {
    method: 'POST',
    headers: { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as Answer['body'] };
};
const reply = async (slug: string) =>
  (await ask(slug, '/runs/wait', { assistant_id: 'echo', input: { said: 'hello' } })).body.reply;

it('deploys a branch of a private repository; a rollback builds the same commit again', async () => {
  const first = git.commit(
    Object.fromEntries(Object.entries(echoSource('first')).map(([path, text]) => [`app/${path}`, text])),
  );
  const made = await client.ask('POST', '/v2/deployments', {
    ...{ name: 'from git', source: 'github', secrets: [{ name: 'GIT_TOKEN', value: 'token-of-the-test' }] },
    source_config: { repo_url: git.privateUrl, install_command: `cd app && ${linkPackages}`, deployment_type: 'dev' },
    source_revision_config: { repo_ref: 'main', langgraph_config_path: 'app/langgraph.json' },
  });
  expect(made.status).toBe(201);
  const { id, latest_revision_id: firstId } = made.body;
  const deployed = await client.awaitDeployed(id, firstId);
  expect(deployed.source_revision_config.repo_commit_sha).toBe(first);
  expect(await reply('from-git')).toBe('first');

  const second = git.commit({ 'app/echo.js': echoSource('second')['echo.js']! });
  const { body: revision } = await client.ask('POST', `/v2/deployments/${id}/revisions`, {});
  expect((await client.awaitDeployed(id, revision.id)).source_revision_config.repo_commit_sha).toBe(second);
  await until('the new revision', async () => (await reply('from-git')) === 'second');

  // The branch has moved, but the revision names its commit.
  const { body: back } = await client.ask('POST', `/v2/deployments/${id}/revisions/${firstId}/redeploy`);
  const redeployed = await client.awaitDeployed(id, back.latest_revision_id);
  expect(redeployed.source_revision_config.repo_commit_sha).toBe(first);
  await until('the former revision', async () => (await reply('from-git')) === 'first');
  const logs = await client.ask('GET', `/v2/deployments/${id}/revisions/${firstId}/logs`);
  expect(JSON.stringify([made, deployed, redeployed, logs])).not.toContain('token-of-the-test');
  expect(runlake.output()).not.toContain('token-of-the-test');
}, 180_000);

/** The graph waits in its second node, longer than a process drains. */
const slowSource = (name: string) => ({
  ...echoSource(name),
  'echo.js': `import { Annotation, StateGraph } from '@langchain/langgraph';
const merge = Annotation({ reducer: (all, more) => [...all, ...more], default: () => [] });
export const graph = new StateGraph(Annotation.Root({ said: Annotation, by: merge }))
  .addNode('first', () => ({ by: ['${name}'] }))
  .addNode('second', async () => {
    if ('${name}' === 'old') await new Promise((resolve) => setTimeout(resolve, 600_000));
    return { by: ['${name}'] };
  })
  .addEdge('__start__', 'first').addEdge('first', 'second').compile();
`,
});

it('a run that outlasts the drain of its revision continues in the new one, from its last stored step', async () => {
  const made = await client.deploy('moving', slowSource('old'));
  await client.awaitDeployed(made.id, made.latest_revision_id);
  const { body: thread } = await ask('moving', '/threads', {});
  const path = `/threads/${thread.thread_id}`;
  const { body: run } = await ask('moving', `${path}/runs`, { assistant_id: 'echo', input: { said: 'hello' } });
  const read = async (what: string): Promise<Answer['body']> => {
    const response = await fetch(`${runlake.url}/deployments/moving${path}${what}`, {
      headers: { 'x-api-key': runlake.apiKey },
    });
    return response.json();
  };
  await until('the first node', async () => JSON.stringify((await read('/state')).values.by) === '["old"]');
  const next = await client.push(made.id, slowSource('new'));
  await client.awaitDeployed(made.id, next.latest_revision_id);
  await until('the end', async () => (await read(`/runs/${run.run_id}`)).status === 'success', 60_000);
  expect((await read('/state')).values.by).toEqual(['old', 'new']);
}, 180_000);
