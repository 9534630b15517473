import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { DeploymentClient } from '../api/control-plane/deployment-client.ts';
import { forSuite } from '../for-suite.ts';
import { agentSource, guardedSource, supportAnswer } from './agent-source.ts';
import { eventually, expectAccessible, openContext, openLine, signIn, startSignedIn, watchPage } from './browser.ts';
import { type Gate, startGate } from './gate.ts';

let client: DeploymentClient;
let deploymentId: string;
let page: Page;
let gate: Gate;

const signedIn = forSuite(
  () =>
    startSignedIn(async (started) => {
      client = new DeploymentClient(started.url, started.apiKey);
      const deployed = await client.deploy('support agent', agentSource, {
        secrets: [{ name: 'SHOP_TOKEN', value: 'a-secret-of-the-shop' }],
      });
      deploymentId = deployed.id;
      await client.awaitDeployed(deploymentId, deployed.latest_revision_id);
    }),
  180_000,
);
afterAll(() => {
  if (process.env.RUNLAKE_TEST_OUTPUT) console.log(signedIn.runlake?.output());
});
beforeEach(async () => {
  page = await signedIn.openPage();
  gate = await startGate();
});
afterEach(() => gate.close());

describe('the playground', () => {
  it('streams tokens, shows tool calls, and answers an interrupt', async () => {
    await page.goto('/agents');
    await page.getByRole('row').filter({ hasText: 'support agent' }).getByText('deployed').waitFor();
    await page.getByRole('link', { name: 'support agent' }).click();
    await page.getByRole('tab', { name: 'Playground' }).click();
    await page.getByLabel('Assistant').selectOption({ label: 'support' });
    await page.getByRole('textbox', { name: 'Message' }).fill('I want a refund');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    const state = page.getByRole('region', { name: 'State' });
    await state.getByText('find_order').first().waitFor();
    const question = page.getByRole('form', { name: 'Interrupts' });
    await question.getByText('Refund 42 euros?').waitFor();
    await expectAccessible(page);
    await question.getByLabel('Answer').fill('yes');
    await question.getByRole('button', { name: 'Answer and resume' }).click();
    const seen = new Set<string>();
    await eventually(async () => {
      const text = (await state.textContent()) ?? '';
      const [, part = ''] = /(The refund of.*)/.exec(text) ?? [];
      seen.add(part);
      return text.includes(supportAnswer);
    }).toBe(true);
    // The answer was visible before it was complete.
    expect([...seen].filter((part) => part !== '' && !part.includes('three days')).length).toBeGreaterThan(0);
    await page.getByText('The run has ended').waitFor();
    await state.getByText('The supervisor says: "yes"').waitFor();
    expect(await question.count()).toBe(0);
    await page.getByRole('link', { name: 'Trace', exact: true }).waitFor();
    await expectAccessible(page);
  });

  it('takes JSON by the fields of a graph, shows what nodes write, and cancels', async () => {
    await openTab('Playground');
    await startTrip('Lyon', gate.url);
    await page.getByRole('button', { name: 'Cancel the run' }).click();
    await page.getByText('The run has ended').waitFor();
    gate.open();
    await startTrip('Lyon');
    await page.getByRole('region', { name: 'Steps' }).getByText('custom').first().waitFor();
    await page.getByRole('region', { name: 'State' }).getByText('Five days in Lyon').waitFor();
  });

  it('shows the error of a run', async () => {
    await openTab('Playground');
    await startTrip('nowhere');
    await page.getByRole('alert').getByText('There is no such city: nowhere').waitFor();
  });

  it('joins the run after a reload', async () => {
    await openTab('Playground');
    await startTrip('Rome', gate.url);
    await page.getByRole('region', { name: 'Steps' }).getByText('custom').first().waitFor();
    await eventually(() => new URL(page.url()).searchParams.get('thread')).not.toBeNull();
    await page.reload();
    await page.getByText('The graph runs').waitFor();
    gate.open();
    await page.getByRole('region', { name: 'State' }).getByText('Five days in Rome').waitFor();
    // Each of its events is there once.
    expect(await page.getByRole('region', { name: 'Steps' }).getByText('custom').count()).toBe(5);
  });

  it('continues a stream whose connection broke', async () => {
    const line = await openLine(Number(new URL(signedIn.runlake.url).port));
    const context = await openContext(signedIn.browser, line.url);
    onTestFinished(async () => {
      await context.close();
      line.close();
    });
    page = await context.newPage();
    await signIn(page, signedIn.runlake.apiKey);
    await openTab('Playground');
    await startTrip('Oslo', gate.url);
    await page.getByRole('region', { name: 'Steps' }).getByText('custom').first().waitFor();
    line.cut();
    gate.open();
    await page.getByRole('region', { name: 'State' }).getByText('Five days in Oslo').waitFor();
    expect(await page.getByRole('region', { name: 'Steps' }).getByText('custom').count()).toBe(5);
  });

  it('shows values as text', async () => {
    await openTab('Playground');
    await page.getByLabel('Assistant').selectOption({ label: 'odd' });
    await page.getByRole('textbox', { name: 'Message' }).fill('<script>document.title=1</script>');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    const state = page.getByRole('region', { name: 'State' });
    await state.getByText('<img src=x onerror="document.title=1"> ⟨U+202E⟩gnp.exe').waitFor();
    await state.getByText('<script>document.title=1</script>').waitFor();
    expect(await page.title()).not.toBe('1');
  });
});

describe('assistants', () => {
  it('have a drawing of their graph, also as a list, and their configuration', async () => {
    await openTab('Assistants');
    await page.getByRole('button', { name: /^support/ }).click();
    await page.getByRole('img', { name: 'Graph of 6 nodes and 6 edges, listed below' }).waitFor();
    await page.getByText('6 nodes and 6 edges as a list').click();
    await page
      .getByRole('listitem')
      .filter({ hasText: 'tools' })
      .getByText(/leads to .*approve/)
      .waitFor();
    await page.getByRole('region', { name: 'Configuration' }).waitFor();
    await page.getByText('Schemas').click();
    await page.getByText('Versions', { exact: true }).click();
    await page.getByRole('region', { name: 'Configuration of version 1' }).waitFor();
    await expectAccessible(page);
    await page.getByRole('button', { name: 'Open in the playground' }).click();
    await page.getByRole('button', { name: 'Run', exact: true }).waitFor();
  });
});

describe('an assistant', () => {
  it('is created, changed, set back to a version, and deleted after a question', async () => {
    await openTab('Assistants');
    await page.getByRole('button', { name: 'Create an assistant' }).click();
    const form = page.getByRole('form', { name: 'New assistant' });
    await form.getByLabel('Name').fill('brief support');
    await form.getByLabel('Graph').selectOption('support');
    await form.getByLabel('Configuration').fill('[1]');
    await form.getByRole('button', { name: 'Create the assistant' }).click();
    await form.getByText('Configuration must be a JSON object').waitFor();
    await expectAccessible(page);
    await form.getByLabel('Configuration').fill('{"configurable": {"tone": "brief"}}');
    await form.getByRole('button', { name: 'Create the assistant' }).click();
    await page.getByRole('heading', { level: 2, name: 'brief support' }).waitFor();
    const [created] = await askAgent('/assistants/search', { name: 'brief support' });
    expect(created).toMatchObject({ graph_id: 'support', version: 1, config: { configurable: { tone: 'brief' } } });

    await page.getByRole('button', { name: 'Change', exact: true }).click();
    const change = page.getByRole('form', { name: 'Change the assistant' });
    await change.getByLabel('Name').fill('kind support');
    await change.getByLabel('Metadata').fill('{"owner": "ada"}');
    await change.getByRole('button', { name: 'Save as a new version' }).click();
    await page.getByRole('heading', { level: 2, name: 'kind support' }).waitFor();
    const [changed] = await askAgent('/assistants/search', { name: 'kind support' });
    expect(changed).toMatchObject({
      version: 2,
      config: { configurable: { tone: 'brief' } },
      metadata: { owner: 'ada' },
    });

    await page.getByText('Versions', { exact: true }).click();
    await page.getByRole('button', { name: 'Make version 1 current' }).click();
    await page.getByRole('heading', { level: 2, name: 'brief support' }).waitFor();
    await page.getByRole('button', { name: 'Delete the assistant brief support' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await eventually(() => page.getByRole('button', { name: /^brief support/ }).count()).toBe(0);
    expect(await askAgent('/assistants/search', { name: 'brief support' })).toEqual([]);
  });
});

describe('threads', () => {
  it('are found, and show history, differences, forks and traces', async () => {
    const { thread_id: thread } = await askAgent('/threads', { metadata: { customer: 'ada' } });
    await askAgent(`/threads/${thread}/runs/wait`, { assistant_id: 'support', input: { messages: 'Refund?' } });
    await openTab('Threads');
    await page.getByRole('searchbox', { name: 'Id or metadata' }).fill('customer=nobody');
    await page.getByRole('button', { name: 'Find' }).click();
    await page.getByText('No thread matches').waitFor();
    await page.getByRole('searchbox', { name: 'Id or metadata' }).fill('customer=ada');
    await page.getByRole('button', { name: 'Find' }).click();
    await page.getByRole('row').filter({ hasText: 'interrupted' }).waitFor();
    await expectAccessible(page);
    await page.getByRole('button', { name: thread }).click();
    await page.getByRole('region', { name: 'approve waits for an answer' }).waitFor();
    await page.getByRole('button', { name: 'Compare with step 1' }).click();
    const differences = page.getByRole('region', { name: 'Differences' });
    await differences.getByText('messages[2]').waitFor();
    await expectAccessible(page);

    // A fork: another message after the second step.
    await page.getByRole('button', { name: /^step 1\b/ }).click();
    await page.getByText('Fork here').click();
    const form = page.getByRole('form', { name: 'Fork' });
    await form.getByLabel('Values').fill('{"messages": [{"role": "user", "content": "Make it 43."}]}');
    await form.getByLabel('As node').selectOption('plan');
    await form.getByRole('button', { name: 'Update the state' }).click();
    await page.getByRole('region', { name: 'State' }).getByText('Make it 43.').waitFor();
    await page.getByText('Change the state').click();
    await page.getByRole('button', { name: 'Run from here' }).click();
    await page.getByText('The next run forks the thread').waitFor();
    await page.getByRole('button', { name: 'Continue without input' }).click();
    await page.getByRole('form', { name: 'Interrupts' }).getByText('Refund 42 euros?').waitFor();
    await page.getByRole('region', { name: 'State' }).getByText('Make it 43.').waitFor();
    await page.getByRole('button', { name: 'History' }).click();
    const traces = page.getByRole('link', { name: /^Trace of the run/ });
    // The list moves when the second run appears.
    await traces.nth(1).waitFor();
    await traces.first().click();
    await page.waitForURL(/\/runs\//);
  });
});

describe('a link to a checkpoint', () => {
  it('shows its state, although it is older than the listed ones', async () => {
    const { thread_id: thread } = await askAgent('/threads', { metadata: { graph_id: 'trip' } });
    const path = `/threads/${thread}/state`;
    const { checkpoint: first } = await askAgent(path, { values: { city: 'step one' }, as_node: 'propose' });
    for (let step = 0; step < 52; step += 1)
      await askAgent(path, { values: { city: `step ${step}` }, as_node: 'propose' });
    await page.goto(`/agents/${deploymentId}?tab=Threads&thread=${thread}&checkpoint=${first.checkpoint_id}`);
    await page.getByRole('region', { name: 'State' }).getByText('step one').waitFor();
    await page.getByRole('button', { name: 'Show older states' }).click();
    await eventually(() => page.getByRole('region', { name: 'History' }).getByRole('listitem').count()).toBe(53);
  });
});

describe('a deployment', () => {
  it('shows revisions with history and log, and redeploys', async () => {
    await openTab('Revisions');
    const log = page.getByRole('region', { name: 'Lines of the log' });
    await log.getByText('the graphs are loaded').first().waitFor();
    await page.getByRole('region', { name: 'History of the revision' }).getByText('awaiting build').waitFor();
    await askAgent('/runs/wait', { assistant_id: 'trip', input: { city: 'Kyiv' } });
    await log.getByText('a trip to Kyiv').waitFor();
    await expectAccessible(page);
    const before = await page.getByRole('region', { name: 'Revisions' }).getByRole('listitem').count();
    await page.getByRole('button', { name: /^Redeploy/ }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Redeploy' }).click();
    const list = page.getByRole('region', { name: 'Revisions' }).getByRole('listitem');
    await eventually(() => list.count()).toBe(before + 1);
    await expect.poll(() => list.first().textContent(), { timeout: 60_000 }).toContain('serves');
  });

  it('has secrets whose values nobody sees, and is deleted after its name was entered', async () => {
    const created = await client.create('short life', { secrets: [{ name: 'TOKEN', value: 'never-shown' }] });
    await page.goto(`/agents/${created.id}?tab=Settings`);
    const secrets = page.getByRole('form', { name: 'Secrets' });
    await secrets.getByText('TOKEN').waitFor();
    await secrets.getByLabel('Name of a new secret').fill('SECOND');
    await secrets.getByLabel('Value of the new secret').fill('also-hidden');
    await secrets.getByRole('button', { name: 'Save the secrets' }).click();
    await secrets.getByText('SECOND').waitFor();
    expect(await page.content()).not.toMatch(/never-shown|also-hidden/);
    await secrets.getByRole('button', { name: 'Remove TOKEN' }).click();
    await secrets.getByRole('button', { name: 'Save the secrets' }).click();
    await eventually(() => secrets.getByText('TOKEN').count()).toBe(0);
    await expectAccessible(page);
    const { body } = await client.ask('GET', `/v2/deployments/${created.id}`);
    expect(body.secrets).toEqual([{ name: 'SECOND', value: '' }]);
    const remove = page.getByRole('button', { name: 'Delete the deployment' });
    expect(await remove.isDisabled()).toBe(true);
    await page.getByLabel(/^Name of the deployment/).fill('short life');
    await remove.click();
    await page.waitForURL(/\/agents$/);
    await eventually(async () => (await client.ask('GET', `/v2/deployments/${created.id}`)).status).toBe(404);
  });

  it('is created from a form, whose errors are shown', async () => {
    await page.goto('/agents');
    await page.getByRole('button', { name: 'Create' }).click();
    const dialog = page.getByRole('dialog');
    await expectAccessible(page);
    await dialog.getByLabel('Name').fill('from git');
    await dialog.getByRole('textbox', { name: 'Repository' }).fill('ftp://example.com/agent');
    await dialog.getByRole('button', { name: 'Create' }).click();
    await dialog.getByRole('alert').waitFor();
    await dialog.getByRole('textbox', { name: 'Repository' }).fill('https://example.invalid/agent.git');
    await dialog.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { name: 'from git' }).waitFor();
    await page.getByRole('tab', { name: 'Assistants' }).click();
    await page.getByText('No revision serves yet').waitFor();
  });

  it('with authentication of its own gets a header that is kept in memory only', async () => {
    const guarded = await client.deploy('guarded', guardedSource);
    await client.awaitDeployed(guarded.id, guarded.latest_revision_id);
    await page.goto(`/agents/${guarded.id}?tab=Assistants`);
    await page.getByText('Say the words.').waitFor();
    await expectAccessible(page);
    // Characters that no header can have.
    await page.getByLabel('Value').fill('Bearer открой сезам');
    await page.getByRole('button', { name: 'Use this header' }).click();
    await page.getByRole('alert').getByText('Headers').waitFor();
    await page.getByLabel('Value').fill('Bearer open sesame');
    await page.getByRole('button', { name: 'Use this header' }).click();
    await page.getByRole('img', { name: /^Graph of/ }).waitFor();
    expect(await page.evaluate(() => JSON.stringify([localStorage, sessionStorage, document.cookie]))).not.toContain(
      'sesame',
    );
    expect(page.url()).not.toContain('sesame');
    await page.reload();
    await page.getByText('Say the words.').waitFor();
  });

  it('is not shown to keys without the permission', async () => {
    const keyOf = async (permissions: string[]) =>
      (await client.ask('POST', '/orgs/current/service-keys', { permissions })).body.key as string;
    const context = await openContext(signedIn.browser, signedIn.runlake.url);
    page = await context.newPage();
    watchPage(page);
    await signIn(page, await keyOf(['runs:read', 'projects:read', 'workspaces:read']), '/agents');
    await page.getByText('deployments:read').waitFor();
    await page.getByRole('button', { name: /^Sign out/ }).click();
    const reader = await keyOf(['deployments:read', 'agents:read', 'projects:read', 'workspaces:read']);
    await signIn(page, reader, `/agents/${deploymentId}?tab=Playground`);
    await page.getByText('agents:run').waitFor();
    expect(await page.getByRole('button', { name: 'Run', exact: true }).count()).toBe(0);
    await page.getByRole('tab', { name: 'Settings' }).click();
    await page.getByText('deployments:write').waitFor();
    await context.close();
  });

  it('leads to the sign-in when the session has ended', async () => {
    await openTab('Threads');
    await page.getByRole('searchbox', { name: 'Id or metadata' }).waitFor();
    await page.context().clearCookies();
    await page.getByRole('searchbox', { name: 'Id or metadata' }).fill('a=b');
    await page.getByRole('button', { name: 'Find' }).click();
    await page.getByLabel('API key').waitFor();
    await signIn(page, signedIn.runlake.apiKey);
  });
});

const openTab = (tab: string) => page.goto(`/agents/${deploymentId}?tab=${tab}`);

/** Starts a run of the graph `trip`, which waits after its third event until the gate is open. */
async function startTrip(city: string, gateUrl?: string): Promise<void> {
  await page.getByLabel('Assistant').selectOption({ label: 'trip' });
  await page.getByRole('button', { name: 'JSON', exact: true }).first().click();
  await page.getByRole('textbox', { name: 'Input' }).fill(JSON.stringify({ city, gate: gateUrl }));
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  if (gateUrl !== undefined) await page.getByText('The graph runs').waitFor();
}

// biome-ignore lint/suspicious/noExplicitAny: each operation has its own response type.
async function askAgent(path: string, body: object): Promise<any> {
  return (await client.ask('POST', `/deployments/support-agent${path}`, body)).body;
}
