import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from 'langsmith';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { DeploymentClient } from '../api/control-plane/deployment-client.ts';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';
import { agentSource } from './agent-source.ts';
import { eventually, expectAccessible, openContext, signIn, startBrowser, watchPage } from './browser.ts';
import { sendExperiment } from './send-experiments.ts';
import { buildChatPrompt } from './send-prompts.ts';
import { buildAgentTrace, type SentRun, sendRuns } from './send-traces.ts';

/** With RUNLAKE_WRITE_SCREENS=true, the images of this folder are written again. */
const folder = fileURLToPath(new URL('screens/', import.meta.url));
const writesScreens = process.env.RUNLAKE_WRITE_SCREENS === 'true';
const hourMs = 3_600_000;
/** Traces of the agents, and runs of the two experiments. */
const allTraces = 241 + 2 * 6;

let runlake: RunlakeProcess;
let browser: Browser;
let trace: readonly SentRun[];
let projectId: string;
let exportId: string;
let exportRoot: string;

/** The screens, and what is visible when their data has arrived. */
const screens: readonly { name: string; path: () => string; ready: (page: Page) => Promise<void> }[] = [
  {
    name: 'projects',
    path: () => '/projects',
    ready: (page) =>
      page
        .getByRole('img', { name: /traces in 14 days/ })
        .first()
        .waitFor(),
  },
  {
    name: 'traces',
    path: () => '/projects',
    ready: async (page) => {
      await page.getByRole('link', { name: 'support-agent' }).click();
      await page.getByRole('table', { name: 'Runs' }).waitFor();
      await page.locator('.figures dd', { hasText: '$' }).waitFor();
    },
  },
  {
    name: 'trace',
    path: () => `/runs/${trace[4]?.id}`,
    ready: (page) => page.getByText('You are the support agent').waitFor(),
  },
  {
    name: 'datasets',
    path: () => '/datasets',
    ready: (page) => page.getByRole('link', { name: 'support questions' }).waitFor(),
  },
  {
    name: 'dataset',
    path: () => `/datasets/${dataset.id}?example=${dataset.exampleId}`,
    ready: async (page) => {
      await page.getByRole('table', { name: 'Examples' }).waitFor();
      await page.getByRole('region', { name: 'Inputs' }).waitFor();
    },
  },
  {
    name: 'experiments',
    path: () => `/datasets/${dataset.id}/compare?selectedSessions=${dataset.experimentIds.join(',')}`,
    ready: async (page) => {
      await page.getByRole('table', { name: 'Examples' }).waitFor();
      await page.getByRole('region', { name: 'Figures of the experiments' }).getByText('better').first().waitFor();
    },
  },
  {
    name: 'prompts',
    path: () => '/prompts',
    ready: (page) => page.getByRole('link', { name: 'support-agent' }).waitFor(),
  },
  {
    name: 'prompt',
    path: () => '/prompts/support-agent',
    ready: (page) => page.getByRole('region', { name: 'Model' }).waitFor(),
  },
  {
    name: 'prompt-changes',
    path: () => '/prompts/support-agent?tab=Changes',
    ready: (page) => page.getByRole('region', { name: 'Difference of Messages' }).waitFor(),
  },
  {
    name: 'settings',
    path: () => '/settings?tab=Audit%20log',
    ready: (page) => page.getByRole('table').getByText('session').first().waitFor(),
  },
  {
    name: 'system',
    path: () => '/system',
    ready: (page) => page.getByText('The queue is empty').waitFor(),
  },
  {
    name: 'usage',
    path: () => '/usage',
    ready: (page) =>
      page
        .getByRole('row', { name: /^Total/ })
        .getByText('$')
        .waitFor(),
  },
];

/** A deployment whose graph waits for an answer. */
let agent: { readonly deploymentId: string; readonly assistantId: string; readonly threadId: string };
const agentPath = (tab: string, more = '') => `/agents/${agent.deploymentId}?tab=${tab}${more}`;

async function deployAgent(): Promise<typeof agent> {
  const client = new DeploymentClient(runlake.url, runlake.apiKey);
  const { id, latest_revision_id } = await client.deploy('support agent', agentSource, {
    secrets: [{ name: 'SHOP_TOKEN', value: 'a-secret-of-the-shop' }],
  });
  await client.awaitDeployed(id, latest_revision_id);
  const ask = async (path: string, body: object) =>
    (await client.ask('POST', `/deployments/support-agent${path}`, body)).body;
  const [{ assistant_id: assistantId }] = await ask('/assistants/search', { graph_id: 'support' });
  const { thread_id: threadId } = await ask('/threads', {});
  const input = { messages: [{ role: 'user', content: 'I want a refund for my last order.' }] };
  await ask(`/threads/${threadId}/runs/wait`, { assistant_id: assistantId, input });
  return { deploymentId: id, assistantId, threadId };
}

async function countUsage(now: number): Promise<number> {
  const headers = { 'x-api-key': runlake.apiKey };
  const [workspace] = await (await fetch(`${runlake.url}/api/v1/workspaces`, { headers })).json();
  const query = new URLSearchParams({
    start_time: new Date(now - 30 * 24 * hourMs).toISOString(),
    end_time: new Date(now + hourMs).toISOString(),
    workspace_ids: workspace.id,
  });
  const usage = await fetch(`${runlake.url}/api/v1/orgs/current/billing/granular-usage?${query}`, { headers });
  const { usage: rows } = await usage.json();
  return rows.reduce((sum: number, { traces }: { traces: number }) => sum + traces, 0);
}

const topics = ['open invoices', 'a refund', 'two equal orders', 'a new address', 'the plan', 'a lost password'];

/** Adds a dataset with two experiments, and prompts, through the SDK and the API. */
async function addDatasetAndPrompts(): Promise<typeof dataset> {
  const client = new Client({ apiUrl: runlake.url, apiKey: runlake.apiKey, disablePromptCache: true });
  const { id } = await client.createDataset('support questions', { description: 'Questions of customers of March' });
  const examples = topics.map((topic, index) => ({
    id: randomUUID(),
    dataset_id: id,
    inputs: { messages: [{ role: 'user', content: `I have a question about ${topic}. Can you help me?` }] },
    outputs: { answer: `The article about ${topic} says what to do.` },
    metadata: { language: 'en' },
    split: index % 2 === 0 ? 'base' : 'hard',
  }));
  await client.createExamples(examples);
  const send = (name: string, isGood: (index: number) => boolean, seconds: number) =>
    sendExperiment(runlake, { name, datasetId: id }, examples, (_, index) => ({
      outputs: { answer: isGood(index) ? `See the article about ${topics[index]}.` : 'Sorry, I do not know.' },
      seconds: seconds + index / 10,
      feedback: { helpful: isGood(index) ? 1 : 0.2, 'right language': 1 },
    }));
  const experimentIds = [
    await send('gpt-4o-mini, prompt 1', (index) => index % 3 !== 0, 2.1),
    await send('gpt-4o-mini, prompt 2', (index) => index !== 1, 1.4),
  ];
  const settings = { model: 'gpt-4o-mini', temperature: 0.2 };
  const first = 'You are the support agent of {company}.\nAnswer briefly.';
  await client.pushPrompt('support-agent', {
    object: buildChatPrompt(first, settings),
    description: 'Answers questions of customers',
    tags: ['support'],
    commitTags: ['production'],
  });
  await client.pushPrompt('support-agent', {
    object: buildChatPrompt(`${first.replace('briefly', 'briefly and kindly')}\nName the article.`, settings),
    commitDescription: 'Kinder, with sources',
  });
  await client.pushSkill('write-mails', { files: { 'SKILL.md': { type: 'file', content: 'Write short mails.' } } });
  return { id, experimentIds, exampleId: examples[0]?.id ?? '' };
}

beforeAll(async () => {
  exportRoot = mkdtempSync(join(tmpdir(), 'runlake-screens-'));
  const environment = { RUNLAKE_LOCAL_EXPORT_ROOT: exportRoot };
  [runlake, browser] = await Promise.all([startRunlake({ environment }), startBrowser()]);
  const now = Date.now() - 60_000;
  trace = buildAgentTrace('support-agent', now, 3);
  const runs = [...trace];
  for (const [place, project] of ['support-agent', 'billing-bot', 'docs-search', 'release-notes'].entries())
    for (let index = 0; index < 90 - 20 * place; index++)
      runs.push(...buildAgentTrace(project, now - index * hourMs * (index < 30 ? 0.2 : 3 + place), index + place));
  await sendRuns(runlake.url, runlake.apiKey, runs);
  dataset = await addDatasetAndPrompts();
  // The roll-up counts an hour within seconds.
  await vi.waitFor(async () => expect(await countUsage(now)).toBe(241), { timeout: 30_000, interval: 250 });
  await createExport(now);
  if (writesScreens) mkdirSync(folder, { recursive: true });
});
afterAll(async () => {
  await browser?.close();
  await runlake?.remove();
  rmSync(exportRoot, { recursive: true, force: true });
});

/** Creates an export of three days, which ends within seconds. */
async function createExport(now: number): Promise<void> {
  const headers = { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' };
  const ask = async (path: string, body?: object) => {
    const init = body === undefined ? { headers } : { method: 'POST', headers, body: JSON.stringify(body) };
    return (await fetch(`${runlake.url}/api/v1${path}`, init)).json();
  };
  [{ id: projectId }] = await ask('/sessions?name=support-agent');
  const lake = { destination_type: 'local', display_name: 'lake', config: { prefix: 'traces' } };
  const { id: destinationId } = await ask('/bulk-exports/destinations', lake);
  ({ id: exportId } = await ask('/bulk-exports', {
    ...{ bulk_export_destination_id: destinationId, session_id: projectId, format_version: 'v2_beta' },
    start_time: new Date(now - 72 * hourMs).toISOString(),
    end_time: new Date(now + hourMs).toISOString(),
  }));
}

async function openSignedIn(options: Parameters<typeof openContext>[2]): Promise<BrowserContext> {
  const context = await openContext(browser, runlake.url, options);
  const page = await context.newPage();
  await page.goto('/');
  await page.getByLabel('API key').fill(runlake.apiKey);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Projects' }).waitFor();
  await page.close();
  return context;
}

describe.each([
  { width: 1280, theme: 'light' },
  { width: 1280, theme: 'dark' },
  { width: 390, theme: 'light' },
] as const)('at $width pixels, $theme', ({ width, theme }) => {
  let context: BrowserContext;
  beforeAll(async () => {
    context = await openSignedIn({ width, theme });
  });
  afterAll(() => context?.close());

  it.each(screens)('$name is accessible and fits', async ({ name, path, ready }) => {
    const page = await context.newPage();
    const { problems } = watchPage(page);
    await page.goto(path());
    await ready(page);
    await expectAccessible(page);
    // Tables scroll by themselves; the page does not.
    expect(await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)).toBeLessThanOrEqual(0);
    if (writesScreens) await page.screenshot({ path: `${folder}${name}-${theme}${width < 800 ? '-narrow' : ''}.png` });
    expect(problems).toEqual([]);
    await page.close();
  });
});

describe('usage', () => {
  it('shows by group what its CSV has', async () => {
    const context = await openContext(browser, runlake.url);
    const page = await context.newPage();
    await signIn(page, runlake.apiKey, '/usage');
    await page.getByLabel('Group by').selectOption('workspace');
    await page.getByRole('columnheader', { name: 'Workspace' }).waitFor();
    const total = page
      .getByRole('region', { name: 'Usage by group' })
      .getByRole('row', { name: /^Total/ })
      .getByRole('cell')
      .first();
    await eventually(() => total.textContent()).toBe('242');
    await page.getByLabel('Group by').selectOption('project');
    const table = page.getByRole('region', { name: 'Usage by group' });
    const row = table
      .getByRole('row', { name: /^support-agent/ })
      .getByRole('cell')
      .first();
    await eventually(() => row.textContent()).toBe('91');
    // Tokens and costs are those of the figures of the project.
    const headers = { 'x-api-key': runlake.apiKey };
    const since = new Date(Date.now() - 31 * 24 * hourMs).toISOString();
    const found = await fetch(
      `${runlake.url}/api/v1/sessions?name=support-agent&include_stats=true&stats_start_time=${since}`,
      { headers },
    );
    const [{ total_tokens, total_cost }] = await found.json();
    const cells = table.getByRole('row', { name: /^support-agent/ }).getByRole('cell');
    await eventually(() => cells.nth(1).textContent()).toBe(total_tokens.toLocaleString('en'));
    expect(await cells.nth(2).textContent()).toBe(`$${Number(total_cost).toFixed(2)}`);
    await page.getByLabel('Show').selectOption('Cost');
    await page.getByRole('columnheader', { name: 'Share of cost' }).waitFor();
    await page.reload();
    await page.getByRole('img', { name: /^Chart of cost, \$/ }).waitFor();
    await expectAccessible(page);
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'CSV' }).click(),
    ]);
    const csv = (await readFile(await download.path(), 'utf8')).trim().split('\r\n');
    const header = (csv[0] ?? '').split(',');
    const traces = csv
      .slice(1)
      .filter((line) => line.includes('support-agent'))
      .map((line) => Number(line.split(',')[header.indexOf('Traces')]));
    expect(traces.reduce((sum, each) => sum + each, 0)).toBe(91);
    const tokens = csv
      .slice(1)
      .filter((line) => line.includes('support-agent'))
      .map((line) => Number(line.split(',')[header.indexOf('Total Tokens')]));
    expect(tokens.reduce((sum, each) => sum + each, 0)).toBe(total_tokens);
    await context.close();
  });
});

describe('projects', () => {
  it('finds projects by a part of their name', async () => {
    const context = await openContext(browser, runlake.url);
    const page = await context.newPage();
    await signIn(page, runlake.apiKey, '/projects');
    await page.getByRole('searchbox', { name: 'Find a project' }).fill('DOCS');
    await eventually(() => page.getByRole('row').count()).toBe(2);
    await page.getByRole('searchbox', { name: 'Find a project' }).fill('nothing like it');
    await page.getByText('No project has this name').waitFor();
    await context.close();
  });
});
