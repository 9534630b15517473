/** What a viewer enters in the playground arrives as it was entered, and stays until it has arrived. */
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { DeploymentClient } from '../api/control-plane/deployment-client.ts';
import { agentSource } from './agent-source.ts';
import { type SignedInBrowser, startSignedIn } from './browser.ts';

let signedIn: SignedInBrowser;
let deploymentId: string;
let page: Page;
let problems: string[];

beforeAll(async () => {
  signedIn = await startSignedIn(async ({ url, apiKey }) => {
    const client = new DeploymentClient(url, apiKey);
    const deployed = await client.deploy('entries', agentSource);
    deploymentId = deployed.id;
    await client.awaitDeployed(deploymentId, deployed.latest_revision_id);
  });
}, 180_000);
afterAll(() => signedIn?.close());
beforeEach(async () => {
  ({ page, problems } = await signedIn.openPage());
});

const openPlayground = async (graph: string) => {
  await page.goto(`/agents/${deploymentId}?tab=Playground`);
  await page.getByLabel('Assistant').selectOption({ label: graph });
};
const run = () => page.getByRole('button', { name: 'Run', exact: true }).click();

it('numbers are sent and shown with all digits', async () => {
  const digits = '9007199254740993';
  const sent: string[] = [];
  await page.route('**/runs/stream', async (route) => {
    sent.push(route.request().postData() ?? '');
    await route.continue();
  });
  // Graphs in Python have such numbers.
  await page.route('**/state?*', async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, body: (await response.text()).replaceAll('"Bergen"', digits) });
  });
  await openPlayground('trip');
  await page.getByRole('button', { name: 'JSON', exact: true }).first().click();
  await page.getByRole('textbox', { name: 'Input' }).fill(`{"city": "Bergen", "days": ${digits}}`);
  await run();
  await page.getByText('The run has ended').waitFor();
  expect(sent).toEqual([expect.stringContaining(`"days":${digits}`)]);
  await page.reload();
  await page.getByRole('region', { name: 'State' }).getByText(digits).waitFor();
  expect(problems).toEqual([]);
});
