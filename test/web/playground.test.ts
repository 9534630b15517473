/** What a viewer enters in the playground arrives as it was entered, and stays until it has arrived. */
import { expect, it } from 'vitest';
import { DeploymentClient } from '../api/control-plane/deployment-client.ts';
import { forSuite } from '../for-suite.ts';
import { agentSource } from './agent-source.ts';
import { eventually, openPages, startSignedIn } from './browser.ts';

let deploymentId: string;

const signedIn = forSuite(
  () =>
    startSignedIn(async ({ url, apiKey }) => {
      const client = new DeploymentClient(url, apiKey);
      const deployed = await client.deploy('entries', agentSource);
      deploymentId = deployed.id;
      await client.awaitDeployed(deploymentId, deployed.latest_revision_id);
    }),
  180_000,
);
const page = openPages(signedIn);

const openPlayground = async (graph: string) => {
  await page.goto(`/agents/${deploymentId}?tab=Playground`);
  await page.getByLabel('Assistant').selectOption({ label: graph });
};
const run = () => page.getByRole('button', { name: 'Run', exact: true }).click();
const refuse = (path: string, detail: string) =>
  page.route(path, (route) => route.fulfill({ status: 503, json: { detail } }));

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
});

it('a message stays if its run is refused, and while the deployment does not respond', async () => {
  await page.clock.install();
  await openPlayground('support');
  const message = page.getByRole('textbox', { name: 'Message' });
  await refuse('**/runs/stream', 'Too busy.');
  await message.fill('A long message');
  await run();
  await page.getByRole('alert').getByText('Too busy.').waitFor();
  await eventually(() => message.inputValue()).toBe('A long message');
  await refuse('**/assistants/search', 'Away.');
  // The second read begins after the failure of the first one is shown.
  for (const _ of [1, 2]) {
    await page.clock.fastForward('00:30');
    const read = page.waitForRequest('**/assistants/search');
    await page.evaluate(() => window.dispatchEvent(new Event('visibilitychange')));
    await read;
  }
  expect(await message.inputValue()).toBe('A long message');
});

it('the answer to an interrupt stays if the run is refused', async () => {
  await openPlayground('support');
  await page.getByRole('textbox', { name: 'Message' }).fill('I want a refund');
  await run();
  const question = page.getByRole('form', { name: 'Interrupts' });
  const answer = question.getByLabel('Answer');
  await answer.fill('perhaps');
  await refuse('**/runs/stream', 'Too busy.');
  await question.getByRole('button', { name: 'Answer and resume' }).click();
  await page.getByRole('alert').getByText('Too busy.').waitFor();
  await eventually(() => answer.inputValue()).toBe('perhaps');
  await page.unroute('**/runs/stream');
  await question.getByRole('button', { name: 'Answer and resume' }).click();
  await page.getByRole('region', { name: 'State' }).getByText('The supervisor says: "perhaps"').waitFor();
});

it('the second question of a node does not begin with the answer to the first one', async () => {
  await openPlayground('survey');
  await page.getByRole('button', { name: 'JSON', exact: true }).first().click();
  await run();
  const question = page.getByRole('form', { name: 'Interrupts' });
  const answer = question.getByLabel('Answer');
  await question.getByText('Your name?').waitFor();
  await answer.fill('["Ada"]');
  await question.getByRole('radio', { name: 'JSON' }).check();
  await question.getByRole('button', { name: 'Answer and resume' }).click();
  await question.getByText('Your city?').waitFor();
  expect(await answer.inputValue()).toBe('');
  expect(await question.getByRole('radio', { name: 'Text' }).isChecked()).toBe(true);
  await answer.fill('Bergen');
  await question.getByRole('button', { name: 'Answer and resume' }).click();
  await page.getByRole('region', { name: 'State' }).getByText('Bergen').waitFor();
});

it('after back, the thread before is shown, not the run of the next one', async () => {
  await openPlayground('support');
  const message = page.getByRole('textbox', { name: 'Message' });
  const state = page.getByRole('region', { name: 'State' });
  const send = async (text: string) => {
    await message.fill(text);
    await run();
    await page.getByText('The run has ended').waitFor();
    await state.getByText(text).first().waitFor();
  };
  await send('Thread one');
  await page.getByRole('button', { name: 'New thread' }).click();
  await send('Thread two');
  await page.goBack();
  await state.getByText('Thread one').first().waitFor();
  expect(await state.getByText('Thread two').count()).toBe(0);
});
