import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { folderForSuite } from '../folders.ts';
import { forSuite } from '../for-suite.ts';
import { isFullExtent, pickSome } from '../house/extent.ts';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';
import { eventually, expectAccessible, openContext, signIn, startBrowser, watchPage } from './browser.ts';
import { fillScreens, type ScreenData } from './fill-screens.ts';

/** With RUNLAKE_WRITE_SCREENS=true, the images of this folder are written again. */
const folder = fileURLToPath(new URL('screens/', import.meta.url));
const repository = fileURLToPath(new URL('../..', import.meta.url));
const writesScreens = process.env.RUNLAKE_WRITE_SCREENS === 'true';

let runlake: RunlakeProcess;
let browser: Browser;
let data: ScreenData;
const exportRoot = folderForSuite();

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
    path: () => `/runs/${data.trace[4]?.id}`,
    ready: (page) => page.getByText('You are the support agent').waitFor(),
  },
  {
    name: 'datasets',
    path: () => '/datasets',
    ready: (page) => page.getByRole('link', { name: 'support questions' }).waitFor(),
  },
  {
    name: 'dataset',
    path: () => `/datasets/${data.dataset.id}?example=${data.dataset.exampleId}`,
    ready: async (page) => {
      await page.getByRole('table', { name: 'Examples' }).waitFor();
      await page.getByRole('region', { name: 'Inputs' }).waitFor();
    },
  },
  {
    name: 'experiments',
    path: () => `/datasets/${data.dataset.id}/compare?selectedSessions=${data.dataset.experimentIds.join(',')}`,
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
    name: 'public-prompts',
    path: () => '/prompts?public=true',
    ready: (page) => page.getByRole('link', { name: 'example-labs/summarise' }).waitFor(),
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
  {
    name: 'agents',
    path: () => '/agents',
    ready: (page) => page.getByRole('link', { name: 'support agent' }).waitFor(),
  },
  {
    name: 'agent-revisions',
    path: () => agentPath('Revisions'),
    ready: (page) => page.getByText('the graphs are loaded').first().waitFor(),
  },
  {
    name: 'agent-graph',
    path: () => agentPath('Assistants', `&assistant=${data.agent.assistantId}`),
    ready: (page) => page.getByRole('img', { name: /^Graph of 6 nodes/ }).waitFor(),
  },
  {
    name: 'agent-thread',
    path: () => agentPath('Threads', `&thread=${data.agent.threadId}`),
    ready: async (page) => {
      await page.getByRole('button', { name: 'Compare with step 1' }).click();
      await page.getByRole('region', { name: 'Differences' }).getByText('messages[2]').waitFor();
      await page.getByRole('region', { name: 'Runs' }).getByText('Trace').waitFor();
    },
  },
  {
    name: 'agent-playground',
    path: () => agentPath('Playground', `&thread=${data.agent.threadId}`),
    ready: (page) => page.getByText('Refund 42 euros?').waitFor(),
  },
  {
    name: 'exports',
    path: () => `/exports/${data.exportId}`,
    ready: async (page) => {
      await page.locator('.page-head').getByText('completed', { exact: true }).waitFor();
      await page.getByRole('region', { name: 'DuckDB lines' }).waitFor();
      await page.getByRole('region', { name: 'Exports of the days' }).waitFor();
    },
  },
  {
    name: 'new-export',
    path: () =>
      `/exports/new?project=${data.projectId}&from=2026-03-01T00:00&until=${new Date().toISOString().slice(0, 10)}T00:00`,
    ready: (page) => page.getByText('runs so far').waitFor(),
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

/** Further screens and tabs, of which there are no images, and a text that is visible when their data has arrived. */
const others: readonly (readonly [path: () => string, ready: string | RegExp])[] = [
  [() => `/runs/${data.trace[0]?.id}?tab=Metadata`, 'Dotted order'],
  [() => `/runs/${data.trace[0]?.id}?tab=Feedback`, 'No feedback on this run'],
  [() => `/runs/${data.trace[0]?.id}?tab=Raw`, /"dotted_order"/],
  [() => `/datasets/${data.dataset.id}?tab=Versions`, 'latest'],
  [() => `/datasets/${data.dataset.id}?tab=Experiments`, 'gpt-4o-mini, prompt 1'],
  [() => '/hub/example-labs/translate', 'read-only'],
  [() => '/exports', 'Range, UTC'],
  [() => '/exports?tab=Schedules', 'No schedules'],
  [() => '/exports?tab=Destinations', 'lake'],
  [() => agentPath('Threads'), 'Changed'],
  [() => agentPath('Settings'), 'SHOP_TOKEN'],
  [() => '/settings?tab=Keys', /Last used|no keys of its own/],
  [() => '/settings?tab=Members', 'Since'],
  [() => '/settings?tab=Workspaces', /^Created$|^Since$|^Name$/],
  [() => '/settings?tab=Retention', 'support-agent'],
  [() => '/settings/absent', 'There is no such page'],
  [() => '/runs/mistyped', 'There is no such page'],
  [() => '/agents/mistyped', 'There is no such page'],
];

const agentPath = (tab: string, more = '') => `/agents/${data.agent.deploymentId}?tab=${tab}${more}`;

/** `make test` opens each screen in one of three variants, selected at random. */
function divideByVariant<Screen>(all: readonly Screen[]): (variant: number) => readonly Screen[] {
  const shuffled = pickSome(all, 1);
  return (variant) => (isFullExtent || writesScreens ? all : shuffled.filter((_, index) => index % 3 === variant));
}
const listScreens = divideByVariant(screens);
const listOthers = divideByVariant(others);

beforeAll(async () => {
  const environment = { RUNLAKE_LOCAL_EXPORT_ROOT: exportRoot, RUNLAKE_SHARE_PUBLIC_PROMPTS: 'true' };
  [runlake, browser] = await Promise.all([startRunlake({ environment }), startBrowser()]);
  data = await fillScreens(runlake);
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

/** Writes an image without the path of this checkout, which is in the log of a deployment. */
async function writeImage(page: Page, file: string): Promise<void> {
  await page.evaluate((root) => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.nodeValue = texts.currentNode.nodeValue!.replace(root, '/srv/runlake/');
  }, repository);
  await page.screenshot({ path: folder + file });
}

/** The title of the page, in tabs and in the history, is the heading of the screen. */
async function expectTitle(page: Page): Promise<void> {
  // Both change when a page has read its data.
  const read = async () => [await page.getByRole('heading', { level: 1 }).textContent(), await page.title()] as const;
  await eventually(() => read().then(([heading, title]) => title === `${heading} · Runlake`)).toBe(true);
}

/** Returns what does not fit: the page, which does not scroll (tables do), or a head that covers what is below it. */
const findOverflow = (page: Page) =>
  page.evaluate(() => {
    const head = document.querySelector('.page-head');
    if (document.documentElement.scrollWidth > window.innerWidth) return 'the page';
    return head && head.scrollHeight > head.clientHeight ? 'the head' : '';
  });

describe.each([
  { width: 1280, theme: 'light', variant: 0 },
  { width: 1280, theme: 'dark', variant: 1 },
  { width: 390, theme: 'light', variant: 2 },
] as const)('at $width pixels, $theme', ({ width, theme, variant }) => {
  const context = forSuite(() => openSignedIn({ width, theme }));

  it.each(listScreens(variant))('$name is accessible and fits', async ({ name, path, ready }) => {
    const page = await context.newPage();
    watchPage(page);
    await page.goto(path());
    await ready(page);
    await expectAccessible(page);
    await expectTitle(page);
    expect(await findOverflow(page)).toBe('');
    if (writesScreens) await writeImage(page, `${name}-${theme}${width < 800 ? '-narrow' : ''}.png`);
    await page.close();
  });

  it('further screens are accessible and fit', async () => {
    const page = await context.newPage();
    watchPage(page);
    for (const [path, ready] of listOthers(variant)) {
      await page.goto(path());
      await page.getByText(ready).first().waitFor();
      await expectAccessible(page);
      await expectTitle(page);
      expect(await findOverflow(page), path()).toBe('');
    }
    await page.close();
  }, 180_000);
});

describe('a part of a screen whose request fails alone', () => {
  const context = forSuite(() => openSignedIn({}));

  it.each<[what: string, request: string, path: () => string]>([
    ['The figures', '/api/v1/runs/stats', () => `/projects/${data.projectId}`],
    ['The figures', '/api/v2/threads/stats', () => `/projects/${data.projectId}/threads`],
    ['The figures', '/api/v2/threads/query', () => `/projects/${data.projectId}/threads?thread=thread-3`],
    ['The traces by day', '/api/v1/orgs/current/billing/granular-usage', () => '/projects'],
    ['The number', '/items/count', () => '/queues'],
    ['The numbers of items', '/items/count', () => `/queues/${data.queueId}`],
    ['The splits', '/splits', () => `/datasets/${data.dataset.id}`],
    ['The tags', '/tags', () => '/prompts/support-agent'],
    ['The status', '/revisions/', () => '/agents'],
    ['The name of the project', '/api/v1/sessions', () => `/exports/${data.exportId}`],
    ['The names of the projects', '/api/v1/sessions', () => '/exports'],
    ['The destination', '/bulk-exports/destinations', () => `/exports/${data.exportId}`],
    ['The destinations', '/bulk-exports/destinations', () => '/exports'],
    ['The number of runs', '/api/v1/runs/stats', () => `/exports/new?project=${data.projectId}`],
    ['The workspaces', '/api/v1/workspaces', () => '/settings'],
  ])('says that %s did not load, and is read again: %s', async (what, request, path) => {
    const page = await context.newPage();
    const isRequest = (url: URL) => url.pathname.startsWith('/api/') && url.pathname.includes(request);
    await page.route(isRequest, (route) => route.fulfill({ status: 400, json: { detail: 'Out of order.' } }));
    await page.goto(path());
    const alert = page.getByRole('alert').filter({ hasText: `${what} did not load: Out of order.` });
    await alert.first().waitFor();
    await expectAccessible(page);
    await page.unroute(isRequest);
    await alert.first().getByRole('button', { name: 'Try again' }).click();
    await eventually(() => page.getByRole('alert').count()).toBe(0);
    await page.close();
  });
});

describe('usage', () => {
  it('shows traces by group, and the tokens and costs that the figures of a project have', async () => {
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
    await eventually(() => total.textContent()).toBe(String(data.traces));
    await page.getByLabel('Group by').selectOption('project');
    const table = page.getByRole('region', { name: 'Usage by group' });
    const row = table
      .getByRole('row', { name: /^support-agent/ })
      .getByRole('cell')
      .first();
    await eventually(() => row.textContent()).toBe('91');
    // Tokens and costs are those of the figures of the project.
    const headers = { 'x-api-key': runlake.apiKey };
    const since = new Date(Date.now() - 31 * 86_400_000).toISOString();
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
