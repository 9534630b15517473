import { Client } from 'pg';
import type { Locator } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import { folderForSuite } from '../folders.ts';
import { forSuite } from '../for-suite.ts';
import type { RunlakeProcess } from '../runlake-process.ts';
import { eventually, expectAccessible, openPages, startSignedIn } from './browser.ts';
import { buildTrace, type SentRun, sendRuns } from './send-traces.ts';

const projectCount = 100_000;
/** The newest of these have a trace each; the other projects have none. */
const tracedCount = 300;

/** Adds projects directly: each of them would take a request. */
async function addProjects(runlake: RunlakeProcess): Promise<void> {
  const [workspace] = await askRunlake(runlake, '/workspaces');
  const database = new Client({ connectionString: runlake.stores().databaseUrl });
  await database.connect();
  try {
    await database.query(
      `INSERT INTO projects (id, workspace_id, name, start_time)
       SELECT gen_random_uuid(), $1::uuid, 'agent ' || lpad(n::text, 6, '0'), now() - n * interval '1 minute'
       FROM generate_series(1, $2::int) AS n
       UNION ALL SELECT gen_random_uuid(), $1::uuid, 'agent', now() - interval '1 year'`,
      [workspace.id, projectCount],
    );
    await database.query('ANALYZE projects');
  } finally {
    await database.end();
  }
  const runs: SentRun[] = [];
  for (let n = 1; n <= tracedCount; n++)
    runs.push(
      ...buildTrace(`agent ${String(n).padStart(6, '0')}`, Date.now() - n * 60_000, { name: 'hello', until: 10 }),
    );
  await sendRuns(runlake.url, runlake.apiKey, runs);
}

describe('100,000 projects', () => {
  const root = folderForSuite();
  const signedIn = forSuite(() => startSignedIn(addProjects, { environment: { RUNLAKE_LOCAL_EXPORT_ROOT: root } }));
  const page = openPages(signedIn);
  const rows = () => page.getByRole('row');
  const search = () => page.getByRole('searchbox', { name: 'Find a project' });

  it('are listed by their newest trace, page by page', async () => {
    const openMs = async (path: string, ready: () => Locator) => {
      const started = performance.now();
      await page.goto(path);
      await ready().waitFor();
      return performance.now() - started;
    };
    const firstProject = () => page.getByRole('link', { name: 'agent 000001' });
    const datasets = () => page.getByRole('heading', { name: 'Datasets', level: 1 });
    const floors = [await openMs('/datasets', datasets), await openMs('/datasets', datasets)];
    const listMs = await openMs('/projects', firstProject);
    // Two or three times as long as a screen without data; 40 times when statistics were built for each project without
    // runs.
    expect(listMs).toBeLessThan(15 * Math.min(...floors));
    expect(await rows().count()).toBe(101);
    await expectAccessible(page);
    await page.getByRole('button', { name: 'Show more projects' }).click();
    await eventually(() => rows().count()).toBe(201);
    await page.getByRole('link', { name: 'agent 000200' }).waitFor();
  });

  it('are found by a part of their name, also while it is typed', async () => {
    await page.goto('/projects');
    await search().pressSequentially('099999');
    await eventually(() => rows().count()).toBe(2);
    await page.getByRole('link', { name: 'agent 099999' }).click();
    await page.getByText('No runs match').waitFor();
    await page.goBack();
    expect(await search().inputValue()).toBe('099999');
    await search().fill('100000');
    await page.getByRole('link', { name: 'agent 100000' }).waitFor();
    await search().press('Home');
    await search().pressSequentially('agent ');
    expect(await search().inputValue()).toBe('agent 100000');
    await page.getByRole('link', { name: 'agent 100000' }).waitFor();
  });

  it('are suggested in the form of an export', async () => {
    await page.goto('/exports?tab=Destinations');
    await page.getByRole('button', { name: 'New destination' }).click();
    await page.getByLabel('Name').fill('lake');
    await page.getByLabel('Type').selectOption('local');
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('row').filter({ hasText: 'lake' }).waitFor();
    await page.goto('/exports/new');
    await page.getByLabel('Project').fill('agent 0000');
    await eventually(() => page.locator('datalist option').count()).toBe(20);
    const preview = page.getByRole('region', { name: 'Preview' });
    await page.getByLabel('Project').fill('agent 099999');
    await preview.getByText('0 runs so far').waitFor();
    // The names of all others contain this one.
    await page.getByLabel('Project').fill('agent');
    await preview.waitFor({ state: 'detached' });
    await preview.getByText('0 runs so far').waitFor();
  });
});
