/** The links that the stock SDKs print and return open the screens of the dashboard. */
import { Client, RunTree } from 'langsmith-0-12';
import { it } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import { forSuite } from '../for-suite.ts';
import { eventually, openPages, startSignedIn } from './browser.ts';

const signedIn = forSuite(() =>
  startSignedIn(async ({ url, apiKey }) => {
    const client = new Client({ apiUrl: url, apiKey, webUrl: url });
    const run = new RunTree({ name: 'linked run', inputs: {}, outputs: {}, project_name: 'linked project', client });
    await run.postRun();
    await client.awaitPendingTraceBatches();
    const dataset = await client.createDataset('linked dataset');
    const example = await client.createExample({ inputs: { word: 'linked example' }, dataset_id: dataset.id });
    const datasetUrl = await client.getDatasetUrl({ datasetId: dataset.id });
    const files = { 'AGENTS.md': { type: 'file' as const, content: 'linked agent' } };
    const other = { display_name: 'Other workspace' };
    const { id: workspaceId } = await askRunlake({ url, apiKey }, '/workspaces', { body: other });
    const otherClient = new Client({ apiUrl: url, apiKey, webUrl: url, workspaceId });
    const otherDataset = await otherClient.createDataset('dataset of another workspace');
    links = {
      'dataset of another workspace': `${url}/o/${workspaceId}/datasets/${otherDataset.id}`,
      'linked run': await client.getRunUrl({ runId: run.id }),
      'linked project': await client.getProjectUrl({ projectName: 'linked project' }),
      'linked dataset': datasetUrl,
      // The Python SDK: `example.url`.
      'linked example': `${datasetUrl}/e/${example.id}`,
      'linked-agent': await client.pushAgent('linked-agent', { files }),
    };
  }),
);
let links: Record<string, string>;
const page = openPages(signedIn);

it.each([
  'dataset of another workspace',
  'linked run',
  'linked project',
  'linked dataset',
  'linked example',
  'linked-agent',
])('%s', async (text) => {
  await page.goto(links[text]!);
  await page.getByText(text).first().waitFor();
  await eventually(() => new URL(page.url()).pathname).not.toMatch(/^\/(?:o|context)\//);
});
