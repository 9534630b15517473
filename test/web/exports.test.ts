import { execFileSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pythonEnvironment } from '../e2e/python/environment.ts';
import { folderForSuite } from '../folders.ts';
import { createProxyTo, forSuite } from '../for-suite.ts';
import { deferred } from '../infra/deferred.ts';
import { findStackS3 } from '../infra/objects/s3/s3-of-stack.ts';
import { openStoreProxy, type StoreProxy } from '../infra/objects/s3/way-to-store.ts';
import { testSettings } from '../test-settings.ts';
import { eventually, expectAccessible, openPages, openWithPermissions, startSignedIn } from './browser.ts';
import { buildTrace, sendRuns } from './send-traces.ts';

const project = `shop "1"`;
const s3 = findStackS3();
const days = ['2026-03-01', '2026-03-02', '2026-03-04'];
const runsPerDay = 4;

const root = folderForSuite();
let store: StoreProxy | undefined;
afterAll(async () => {
  await store?.close();
  await s3?.close();
});
beforeAll(async () => {
  store = s3 && (await openStoreProxy(s3.endpoint));
});
const runs = days.flatMap((day) =>
  Array.from({ length: runsPerDay }, (_, index) =>
    buildTrace(project, Date.parse(`${day}T08:00:00Z`) + index * 1000, { name: `run ${index}`, until: 100 }),
  ).flat(),
);
const signedIn = forSuite(() =>
  startSignedIn(({ url, apiKey }) => sendRuns(url, apiKey, runs), {
    environment: {
      RUNLAKE_LOCAL_EXPORT_ROOT: root,
      RUNLAKE_ALLOW_PRIVATE_ENDPOINTS: 'true',
      // Several files for each day, and no second attempt within a test.
      ...testSettings({ exportSliceRows: 3, exportRetryDelayMs: 600_000 }),
    },
  }),
);
const runlake = createProxyTo(() => signedIn.runlake);
const page = openPages(signedIn);

const api = async (path: string) =>
  (await fetch(`${runlake.url}/api/v1${path}`, { headers: { 'x-api-key': runlake.apiKey } })).json();
const region = (name: string) => page.getByRole('region', { name, exact: true });
const test = () => page.getByRole('status', { name: 'Test of the destination' });
const figure = (label: string) =>
  page
    .locator('.figures div')
    .filter({ has: page.getByText(label, { exact: true }) })
    .locator('dd')
    .textContent();
const exportId = () => new URL(page.url()).pathname.split('/').at(-1) ?? '';
const status = (name: string) => page.locator('.page-head').getByText(name, { exact: true });

async function createFolder(name: string, prefix: string): Promise<void> {
  await page.goto('/exports?tab=Destinations');
  await page.getByRole('button', { name: 'New destination' }).click();
  expect(await page.evaluate(() => document.activeElement?.getAttribute('name'))).toBe('name');
  await page.getByLabel('Name').fill(name);
  await page.getByLabel('Type').selectOption('local');
  await page.getByLabel('Folder below the root').fill(prefix);
  await page.getByRole('button', { name: 'Create' }).click();
}

/** Fills the form of an export of the days of the test. */
async function fillExport(destination: string): Promise<void> {
  await page.goto('/exports/new');
  await page.getByLabel('Destination').selectOption({ label: destination });
  await page.getByLabel('Project').fill(project);
  await page.getByLabel('From, UTC').fill('2026-03-01T00:00');
  await page.getByLabel('Until, UTC').fill('2026-03-05T00:00');
  await region('Preview').getByText('12 runs so far').waitFor();
}

describe('destinations', () => {
  it('are created, tested step by step, and deleted after a question', async () => {
    await page.goto('/exports/new');
    await page.getByRole('link', { name: 'Create a destination first.' }).click();
    await page.getByText('No destinations').waitFor();
    await expectAccessible(page);
    await createFolder('up', '../up');
    await page.getByRole('alert').getByText("contains '.' or '..' as a folder name").waitFor();
    await page.getByLabel('Folder below the root').fill('lake');
    await page.getByLabel('Name').fill('lake <b>1</b>');
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('alert').getByText('display_name').waitFor();
    await page.getByLabel('Name').fill('lake');
    await page.getByRole('button', { name: 'Create' }).click();
    await eventually(() => test().getByText('passed').count()).toBe(4);
    await expectAccessible(page);

    const row = page.getByRole('row').filter({ hasText: 'lake' });
    rmSync(join(root, 'lake'), { recursive: true });
    writeFileSync(join(root, 'lake'), 'a file in place of the folder');
    await row.getByRole('button', { name: 'Test lake' }).click();
    await test().getByText('step write').waitFor();
    expect(await test().getByText('not run').count()).toBe(2);
    await expectAccessible(page);
    rmSync(join(root, 'lake'));

    await createFolder('to delete', 'other');
    await page.getByRole('button', { name: 'Delete to delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await eventually(() => page.getByRole('row').filter({ hasText: 'to delete' }).count()).toBe(0);
    await row.waitFor();
  });
});

describe('an export', () => {
  it('has a form that is filled with the keyboard', async () => {
    await page.goto('/exports/new');
    const filter = page.getByLabel('Only runs that match');
    await filter.pressSequentially('gt(, 2)');
    for (const _ of ', 2)') await filter.press('ArrowLeft');
    await filter.pressSequentially('latency');
    expect(await filter.inputValue()).toBe('gt(latency, 2)');
    const columns = page.getByLabel('Columns');
    await columns.pressSequentially('name');
    await columns.press('Home');
    await columns.pressSequentially('id, ');
    expect(await columns.inputValue()).toBe('id, name');
    await page.getByLabel('Repeat').selectOption('schedule');
    const interval = page.getByLabel('Interval in hours');
    await interval.press('ControlOrMeta+a');
    await interval.press('Delete');
    await interval.pressSequentially('48');
    expect(await interval.inputValue()).toBe('48');
    await eventually(() => new URL(page.url()).searchParams.get('every')).toBe('48');
    const from = page.getByLabel('From, UTC');
    await from.focus();
    await page.keyboard.type('030120260000AM');
    expect(await from.inputValue()).toBe('2026-03-01T00:00');
    await page.reload();
    await eventually(() => from.inputValue()).toBe('2026-03-01T00:00');
    expect(await filter.inputValue()).toBe('gt(latency, 2)');
  });

  it('is previewed, created, watched until it is complete, and read with the snippets', async () => {
    await fillExport('lake');
    await page.getByLabel('Only runs that match').fill('eq(nam, "run 1")');
    await region('Preview').getByRole('alert').getByText('did you mean `name`').waitFor();
    await page.getByLabel('Only runs that match').fill('neq(name, "run 1")');
    await region('Preview').getByText('9 runs so far').waitFor();
    await expectAccessible(page);
    // The address has the whole form.
    await page.reload();
    await region('Preview').getByText('9 runs so far').waitFor();
    expect(await page.getByLabel('Project').inputValue()).toBe(project);
    const previewed = await region('Preview').getByRole('listitem').allTextContents();
    expect(previewed.map((path) => /\/(month=.*|_manifest\.json)$/.exec(path)?.[1])).toEqual([
      ...['01', '02', '03', '04'].map((day) => `month=03/day=${day}/`),
      '_manifest.json',
    ]);

    await page.getByRole('button', { name: 'Create the export' }).click();
    await status('completed').waitFor();
    const id = exportId();
    await region('Progress').getByText('9 of 9').waitFor();
    await region('Progress').getByText('rows/s').waitFor();
    await region('Progress').getByText('4 of 4').waitFor();
    await expectAccessible(page);
    expect(await page.getByText('neq(name, "run 1")').count()).toBe(1);

    const [first] = await api(`/bulk-exports/${id}/runs`);
    expect(`${first.metadata.result.export_path}/`).toBe(previewed[0]?.replace('<export id>', id));
    await page.getByRole('button', { name: '1 files of 2026-03-01' }).click();
    const [file] = await api(`/bulk-exports/${id}/runs/${first.id}/files`);
    await region('Files').getByText(file.path).waitFor();
    await region('Files').getByText(file.sha256).waitFor();
    await page.reload();
    await region('Files').getByText(file.path).waitFor();

    const duckdb = await (await DuckDBInstance.create(':memory:')).connect();
    await duckdb.run(`SET file_search_path = '${root}'`);
    const sql = (await region('DuckDB lines').textContent()) ?? '';
    const rows = (await duckdb.runAndReadAll(sql)).getRowsJson();
    expect(rows.map((row) => row.map(Number))).toEqual(days.map((day) => [...day.split('-').map(Number), 3]));
    duckdb.closeSync();

    await page.getByRole('tab', { name: 'pandas' }).click();
    const python = pythonEnvironment('parquet');
    if ('python' in python) {
      const code = (await region('pandas lines').textContent()) ?? '';
      const printed = execFileSync(python.python, ['-c', code], { cwd: root, encoding: 'utf8' });
      expect(printed.match(/\b3\n/g)).toHaveLength(3);
    }
    await page.getByRole('tab', { name: 'ClickHouse' }).click();
    expect(await region('ClickHouse lines').textContent()).toContain(`file('lake/export_id=${id}/`);
    await page.getByRole('link', { name: 'Exports', exact: true }).first().click();
    await page.getByRole('row').filter({ hasText: project }).getByText('completed').waitFor();
    await expectAccessible(page);
  });

  it('shows the default of a time that was cleared', async () => {
    await page.goto('/exports/new?from=2026-03-01T00:00&until=2026-03-02T00:00');
    for (const label of ['From, UTC', 'Until, UTC, exclusive']) {
      await page.getByLabel(label).fill('');
      await page.getByLabel(label).blur();
    }
    const midnight = Math.floor(Date.now() / 86_400_000) * 86_400_000;
    const shown = (daysAgo: number) => new Date(midnight - daysAgo * 86_400_000).toISOString().slice(0, 16);
    await eventually(() => page.getByLabel('From, UTC').inputValue()).toBe(shown(7));
    await eventually(() => page.getByLabel('Until, UTC, exclusive').inputValue()).toBe(shown(0));
  });

  it('is in the list as soon as it is created', async () => {
    await page.goto('/exports');
    const rows = page.getByRole('row');
    await rows.nth(1).waitFor();
    const count = await rows.count();
    await page.getByRole('link', { name: 'New export' }).click();
    await page.getByLabel('Project').fill(project);
    await region('Preview').waitFor();
    await page.getByRole('button', { name: 'Create the export' }).click();
    await page.getByRole('link', { name: 'Exports', exact: true }).first().click();
    await rows.nth(count).waitFor({ timeout: 2_000 });
  });

  it('shows the errors of its days', async () => {
    await createFolder('broken', 'broken');
    await eventually(() => test().getByText('passed').count()).toBe(4);
    rmSync(join(root, 'broken'), { recursive: true });
    writeFileSync(join(root, 'broken'), 'a file in place of the folder');
    await fillExport('broken');
    await page.getByRole('button', { name: 'Create the export' }).click();
    await status('failed').waitFor();
    await region('Days').getByText('retry_0').first().waitFor();
    expect(await region('Days').getByText('retry_0').first().textContent()).toContain('step upload');
    expect(await page.getByRole('button', { name: 'Cancel the export' }).count()).toBe(0);
    await expectAccessible(page);
  });

  it('that does not exist is not found', async () => {
    await page.goto('/exports/00000000-0000-4000-8000-000000000000');
    await page.getByRole('alert').getByRole('heading', { name: 'Not found' }).waitFor();
    await expectAccessible(page);
  });
});

describe('a schedule', () => {
  it('exports past intervals, shows its exports, and is cancelled', async () => {
    await page.goto('/exports/new');
    await page.getByLabel('Destination').selectOption({ label: 'lake' });
    await page.getByLabel('Project').fill(project);
    await page.getByLabel('Repeat').selectOption('schedule');
    const day = 86_400_000;
    const start = new Date(Math.floor(Date.now() / day) * day - 3 * day).toISOString().slice(0, 16);
    await page.getByLabel('From, UTC').fill(start);
    await page.getByLabel('Interval in hours').fill('48');
    await region('Preview').getByText('1 exports of past intervals now').waitFor();
    await region('Preview').getByText('0 runs so far').waitFor();
    await expectAccessible(page);
    await page.getByRole('button', { name: 'Create the schedule' }).click();
    await page.getByText('Every 48 h from').waitFor();
    await region('Exports').getByText('completed').waitFor({ timeout: 30_000 });
    await page.getByRole('button', { name: 'Cancel the schedule' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel the schedule' }).click();
    await status('cancelled').waitFor();
    await page.getByRole('link', { name: 'Schedules' }).click();
    await region('Schedules').getByText('cancelled').waitFor();
    await expectAccessible(page);
  });
});

describe('without the permission to manage exports', () => {
  it('shows exports, but nothing that changes them', async () => {
    const reader = await openWithPermissions(signedIn, ['bulk-exports:read'], '/exports');
    await reader.getByText('completed').first().waitFor();
    expect(await reader.getByRole('link', { name: 'New export' }).count()).toBe(0);
    await reader.goto('/exports?tab=Destinations');
    await reader.getByRole('row').filter({ hasText: 'lake' }).waitFor();
    expect(await reader.getByRole('main').getByRole('button').count()).toBe(0);
    await reader.goto('/exports/new');
    await reader.getByText('bulk-exports:manage').waitFor();
    await reader.context().close();
  });

  it('names the permission to read them', async () => {
    const stranger = await openWithPermissions(signedIn, ['projects:read'], '/exports');
    await stranger.getByText('bulk-exports:read').waitFor();
    await expectAccessible(stranger);
    await stranger.context().close();
  });
});

describe.runIf(s3)('a destination in S3', () => {
  const key = (identity: 'writer' | 'reader' | 'guest' | 'admin') => s3?.credentials(identity);
  const fillKey = async (identity: Parameters<typeof key>[0]) => {
    await page.getByLabel('Access key id').fill(key(identity)?.accessKeyId ?? '');
    await page.getByLabel('Secret access key').fill(key(identity)?.secretAccessKey ?? '');
  };
  const expectNoSecret = async () => {
    const html = await page.content();
    for (const identity of ['writer', 'reader', 'admin'] as const)
      expect(html).not.toContain(key(identity)?.secretAccessKey);
  };

  it('names the step that fails, and replaces credentials without showing them', async () => {
    await page.goto('/exports?tab=Destinations');
    await page.getByRole('button', { name: 'New destination' }).click();
    await page.getByLabel('Name').fill('bucket');
    await page.getByLabel('Bucket').fill(s3?.bucket ?? '');
    await page.getByLabel('Prefix').fill('web/made by');
    await page.getByLabel('Endpoint').fill(store?.endpoint ?? '');
    await fillKey('reader');
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('alert').getByText('step write').waitFor();
    await fillKey('writer');
    await page.getByRole('button', { name: 'Create' }).click();
    await eventually(() => test().getByText('passed').count()).toBe(4);
    await expectNoSecret();
    const replace = page.getByRole('button', { name: 'Replace the credentials of bucket' });
    await replace.click();
    await fillKey('reader');
    await expectAccessible(page);
    await page.getByRole('button', { name: 'Replace', exact: true }).click();
    await page.getByRole('alert').getByText('step write').waitFor();
    await fillKey('admin');
    await page.getByRole('button', { name: 'Replace', exact: true }).click();
    await eventually(() => page.getByLabel('Access key id').count()).toBe(0);
    await eventually(() => test().getByText('passed').count()).toBe(4);
    await expectNoSecret();
  });

  /** Creates an export whose second file is not written before the returned function is called. */
  async function createHeldExport(): Promise<() => void> {
    await fillExport('bucket');
    const { promise: held, resolve } = deferred();
    store?.when(/^PUT .*-0*2\.parquet/, () => held);
    await page.getByRole('button', { name: 'Create the export' }).click();
    await status('running').waitFor();
    return resolve;
  }

  it('shows rate and time left of an export that is half done, and its files are read with the snippets', async () => {
    const release = await createHeldExport();
    await eventually(() => figure('Time left')).toMatch(/ (s|ms)$/);
    expect(await figure('Rate')).toMatch(/rows\/s$/);
    release();
    await status('completed').waitFor();
    await eventually(() => figure('Rows')).toBe('12 of 12');

    await page.getByRole('tab', { name: 'ClickHouse' }).click();
    const sql = (await region('ClickHouse lines').textContent()) ?? '';
    expect(sql).toContain(`s3('${store?.endpoint}/${s3?.bucket}/web/made%20by/export_id=${exportId()}/`);
    // The account of Runlake may not read from stores: ClickHouse only parses the lines.
    const { origin, username, password } = new URL(runlake.stores().clickhouseUrl);
    const authorization = `Basic ${Buffer.from(`${username}:${decodeURIComponent(password)}`).toString('base64')}`;
    const parsed = await fetch(origin, { method: 'POST', body: `EXPLAIN AST ${sql}`, headers: { authorization } });
    expect(parsed.status, await parsed.text()).toBe(200);
    await page.getByRole('tab', { name: 'DuckDB' }).click();
    const lines = (await region('DuckDB lines').textContent()) ?? '';
    expect(lines).toContain(`ENDPOINT '${new URL(store?.endpoint ?? '').host}', USE_SSL false, URL_STYLE 'path'`);
    expect(lines).toContain(`s3://${s3?.bucket}/web/made by/export_id=${exportId()}/`);
  });

  it('has an export that is cancelled after a question', async () => {
    const release = await createHeldExport();
    await page.getByRole('button', { name: 'Cancel the export' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Back' }).click();
    await status('running').waitFor();
    await page.getByRole('button', { name: 'Cancel the export' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel the export' }).click();
    await status('cancelled').waitFor();
    await page.getByText('It was cancelled.').waitFor();
    await expectAccessible(page);
    expect((await api(`/bulk-exports/${exportId()}`)).status).toBe('CANCELLED');
    release();
  });
});
