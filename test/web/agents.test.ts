import type { Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { DeploymentClient } from '../api/control-plane/deployment-client.ts';
import type { RunlakeProcess } from '../runlake-process.ts';
import { agentSource, supportAnswer } from './agent-source.ts';
import { eventually, expectAccessible, type SignedInBrowser, startSignedIn } from './browser.ts';

let signedIn: SignedInBrowser;
let runlake: RunlakeProcess;
let client: DeploymentClient;
let deploymentId: string;
let page: Page;
let problems: string[];

beforeAll(async () => {
  signedIn = await startSignedIn(async (started) => {
    client = new DeploymentClient(started.url, started.apiKey);
    const deployed = await client.deploy('support agent', agentSource, {
      secrets: [{ name: 'SHOP_TOKEN', value: 'a-secret-of-the-shop' }],
    });
    deploymentId = deployed.id;
    await client.awaitDeployed(deploymentId, deployed.latest_revision_id);
  });
  ({ runlake } = signedIn);
}, 180_000);
afterAll(async () => {
  if (process.env.RUNLAKE_TEST_OUTPUT) console.log(runlake?.output());
  await signedIn?.close();
});
beforeEach(async () => {
  ({ page, problems } = await signedIn.openPage());
});

describe('the playground', () => {
  it('streams tokens, shows tool calls, and answers an interrupt', async () => {
    await page.goto('/agents');
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
    expect(problems).toEqual([]);
  });
});
