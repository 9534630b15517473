/** The live tail of projects with more runs than a page of the list. */
import { expect, it } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import { forSuite } from '../for-suite.ts';
import { eventually, expectAccessible, openPages, startSignedIn } from './browser.ts';
import { buildTrace, type RunTemplate, sendRuns } from './send-traces.ts';

const signedIn = forSuite(() => startSignedIn());
const page = openPages(signedIn);

const table = () => page.getByRole('table', { name: 'Runs' });
const rows = () => table().getByRole('row');
const count = async () => Number(await table().getAttribute('aria-rowcount')) - 1;

const polls = '**/api/v2/runs/query';
const ask = (path: string, body?: object) => askRunlake(signedIn.runlake, path, { body });
/** Sends traces of one run, and waits until the project has `total` runs. */
const send = async (project: string, runCount: number, root: RunTemplate, total = runCount) => {
  const now = Date.now();
  const traces = Array.from({ length: runCount }, (_, index) => buildTrace(project, now + index, root));
  await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, traces.flat());
  const [session] = await ask(`/sessions?name=${project}`);
  const readCount = async () => (await ask('/runs/stats', { session: [session.id], select: ['run_count'] })).run_count;
  await eventually(readCount).toBe(total);
  return traces.flat();
};
const open = async (project: string) => {
  await page.goto('/projects');
  await page.getByRole('link', { name: project }).click();
  await eventually(async () => {
    await page.getByRole('button', { name: 'Refresh' }).click();
    return count();
  }).toBe(100);
};

it('shows runs that have ended no longer', async () => {
  const runs = await send('many-pending', 150, { name: 'pending' });
  await open('many-pending');
  await page.getByRole('button', { name: 'Not ended' }).click();
  await page.getByRole('button', { name: 'Live' }).click();
  await eventually(count).toBe(100);
  await page.waitForResponse(polls);
  const ended = runs.slice(-30).map((run) => ({ ...run, end_time: new Date().toISOString() }));
  await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, ended, 'patch');
  await eventually(async () => {
    await page.locator('.virtual-scroll').evaluate((element) => element.scrollTo(0, element.scrollHeight));
    return page.getByText('these are all.').count();
  }).toBe(1);
  await eventually(count).toBe(120);
});

it('keeps the older rows that the viewer reads', async () => {
  await send('many-new', 250, { name: 'old', until: 10 });
  await open('many-new');
  await page.getByRole('button', { name: 'Live' }).click();
  await page.waitForResponse(polls);
  const scroller = page.locator('.virtual-scroll');
  await scroller.evaluate((element) => element.scrollTo(0, 3000));
  await eventually(count).toBe(200);
  const readTop = () => scroller.evaluate((element) => element.scrollTop);
  const top = await readTop();
  await page.route(polls, (route) => route.abort());
  await send('many-new', 150, { name: 'unseen', until: 10 }, 400);
  await page.unroute(polls);
  await page.getByText('There are newer runs than those shown.').waitFor();
  await expectAccessible(page);
  expect(await count()).toBe(200);
  expect(await readTop()).toBe(top);
  await page.getByRole('button', { name: 'Show the newest' }).click();
  await eventually(() => page.getByText('There are newer runs').count()).toBe(0);
  await eventually(() => rows().nth(1).textContent()).toContain('unseen');
  expect(await readTop()).toBe(0);
});
