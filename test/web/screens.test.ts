import { mkdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';
import { eventually, expectAccessible, openContext, signIn, startBrowser, watchPage } from './browser.ts';
import { buildAgentTrace, type SentRun, sendRuns } from './send-traces.ts';

/** With RUNLAKE_WRITE_SCREENS=true, the images of this folder are written again. */
const folder = fileURLToPath(new URL('screens/', import.meta.url));
const writesScreens = process.env.RUNLAKE_WRITE_SCREENS === 'true';
const hourMs = 3_600_000;

let runlake: RunlakeProcess;
let browser: Browser;
let trace: readonly SentRun[];

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
    name: 'threads',
    path: () => '/projects',
    ready: async (page) => {
      await page.getByRole('link', { name: 'support-agent' }).click();
      await page.getByRole('link', { name: 'Threads' }).click();
      await page.getByRole('table', { name: 'Threads' }).waitFor();
      await page.locator('.figures dd', { hasText: '$' }).waitFor();
    },
  },
  {
    name: 'thread',
    path: () => '/projects',
    ready: async (page) => {
      await page.getByRole('link', { name: 'support-agent' }).click();
      await page.getByRole('link', { name: 'Threads' }).click();
      await page.getByRole('link', { name: 'thread-3' }).click();
      await page.getByText('Why was order 48213 shipped twice?').last().waitFor();
      await eventually(() => page.getByText('Loading').count()).toBe(0);
    },
  },
  { name: 'queues', path: () => '/queues', ready: (page) => page.getByText('Answers of the week').waitFor() },
  {
    name: 'queue',
    path: () => '/queues',
    ready: async (page) => {
      await page.getByRole('link', { name: 'Answers of the week' }).click();
      await page.getByText('Here is what I found').first().waitFor();
      await page.getByRole('radio', { name: 'correct' }).waitFor();
    },
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
  { name: 'usage', path: () => '/usage', ready: (page) => page.getByRole('table').getByText('Total').waitFor() },
];

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

/** Creates an annotation queue with some of the traces. */
async function createQueue(runs: readonly SentRun[]): Promise<void> {
  const post = async (path: string, body: unknown) => {
    const headers = { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' };
    const response = await fetch(`${runlake.url}/api/v1/${path}`, {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
    });
    expect(response.status).toBe(200);
    return response.json();
  };
  const categories = ['wrong', 'partly', 'correct'].map((label, value) => ({ value: value / 2, label }));
  await post('feedback-configs', { feedback_key: 'correctness', feedback_config: { type: 'categorical', categories } });
  await post('feedback-configs', { feedback_key: 'tone', feedback_config: { type: 'continuous', min: 0, max: 10 } });
  const { id } = await post('annotation-queues', {
    name: 'Answers of the week',
    description: 'A sample of the support agent',
    rubric_instructions: 'Compare each answer with the records.',
    rubric_items: [
      { feedback_key: 'correctness', is_required: true, description: 'Does the answer agree with the cited records?' },
      { feedback_key: 'tone' },
    ],
  });
  const answered = runs.filter((run) => run.name === 'support agent' && run.outputs !== undefined);
  await post(
    `annotation-queues/${id}/runs`,
    answered.slice(0, 12).map((run) => run.id),
  );
}

beforeAll(async () => {
  [runlake, browser] = await Promise.all([startRunlake(), startBrowser()]);
  const now = Date.now() - 60_000;
  trace = buildAgentTrace('support-agent', now, 3);
  const runs = [...trace];
  for (const [place, project] of ['support-agent', 'billing-bot', 'docs-search', 'release-notes'].entries())
    for (let index = 0; index < 90 - 20 * place; index++)
      runs.push(...buildAgentTrace(project, now - index * hourMs * (index < 30 ? 0.2 : 3 + place), index + place));
  await sendRuns(runlake.url, runlake.apiKey, runs);
  await createQueue(runs);
  // The roll-up counts an hour within seconds.
  await vi.waitFor(async () => expect(await countUsage(now)).toBe(241), { timeout: 30_000, interval: 250 });
  if (writesScreens) mkdirSync(folder, { recursive: true });
});
afterAll(async () => {
  await browser?.close();
  await runlake?.remove();
});

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
    await eventually(() => total.textContent()).toBe('241');
    await page.getByLabel('Group by').selectOption('project');
    const table = page.getByRole('region', { name: 'Usage by group' });
    const row = table
      .getByRole('row', { name: /^support-agent/ })
      .getByRole('cell')
      .first();
    await eventually(() => row.textContent()).toBe('91');
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
