import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { parse } from 'csv-parse/sync';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { chooseStride } from '../../pipelines/usage/rollup-query.ts';
import { listBuckets } from '../../web/src/screens/usage/report.ts';
import { type UsageRange, usageRanges } from '../../web/src/screens/usage/search.ts';
import fc from '../house/fast-check.ts';
import type { RunlakeProcess } from '../runlake-process.ts';
import {
  eventually,
  expectAccessible,
  openContext,
  openWithPermissions,
  type SignedInBrowser,
  signIn,
  startSignedIn,
} from './browser.ts';
import { buildTrace, type SentRun, sendRuns } from './send-traces.ts';

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const ranges = Object.keys(usageRanges) as UsageRange[];
const monthOf = (ms: number) => new Date(ms).toISOString().slice(0, 7);

describe('the buckets of a range', () => {
  const strides = { '24h': [0, 1], '31d': [1, 0], '13w': [7, 0], '12m': [1, 0] } as const;

  it.each(ranges)('of %s have no gaps, end with the present, and have the size that the API chooses', (range) => {
    fc.assert(
      fc.property(fc.integer({ min: Date.UTC(2025, 0), max: Date.UTC(2045, 0) }), (now) => {
        const buckets = listBuckets(range, now);
        const [first, last] = [buckets[0], buckets.at(-1)] as [(typeof buckets)[0], (typeof buckets)[0]];
        expect(buckets.slice(1).map(({ startMs }) => startMs)).toEqual(buckets.slice(0, -1).map(({ endMs }) => endMs));
        expect(last.startMs <= now && now < last.endMs).toBe(true);
        const [days, hours] = strides[range];
        for (const { startMs, endMs } of range === '12m' ? buckets : [{ startMs: first.startMs, endMs: last.endMs }])
          expect(chooseStride({ startMs, endMs: endMs - 1 })).toEqual({ days, hours });
        if (range === '12m') return;
        for (const { startMs, endMs } of buckets) expect(endMs - startMs).toBe((days * 24 + hours) * hourMs);
      }),
    );
  });

  it('of months are calendar months in UTC', () => {
    const names = (now: string) => listBuckets('12m', Date.parse(now)).map(({ startMs }) => new Date(startMs));
    expect(names('2026-01-31T23:59:59.999Z').map((start) => start.toISOString().slice(0, 10))).toEqual(
      ['02', '03', '04', '05', '06', '07', '08', '09', '10', '11', '12']
        .map((month) => `2025-${month}-01`)
        .concat('2026-01-01'),
    );
    expect(names('2028-03-01T00:00:00Z').at(-2)?.toISOString()).toBe('2028-02-01T00:00:00.000Z');
  });
});

describe('the usage screen', () => {
  const formula = '=SUM(A1), "x"';
  let signedIn: SignedInBrowser;
  let runlake: RunlakeProcess;
  /** Starts of the traces, among them the first and last milliseconds of months. */
  const starts: number[] = [];
  beforeAll(async () => {
    const now = Date.now();
    const months = listBuckets('12m', now);
    for (const [index, { startMs, endMs }] of months.entries()) {
      for (let count = 0; count <= index % 3; count++) starts.push(startMs + count, endMs - 1 - count);
      starts.push(startMs + 14 * dayMs + 12 * hourMs);
    }
    starts.push(months[0]!.startMs - 1, now - 2 * hourMs, now - 26 * hourMs, now - 50 * dayMs);
    for (let index = starts.length - 1; index >= 0; index--) if (starts[index]! > now) starts.splice(index, 1);
    const usage = { usage_metadata: { input_tokens: 7, output_tokens: 3, total_tokens: 10, total_cost: 0.25 } };
    const runs = starts.flatMap((start, index): SentRun[] => {
      const call = { name: 'call', run_type: 'llm', until: 5, outputs: usage };
      return buildTrace(index % 4 === 0 ? formula : 'steady', start, { name: 'turn', until: 10, children: [call] });
    });
    signedIn = await startSignedIn(({ url, apiKey }) => sendRuns(url, apiKey, runs));
    ({ runlake } = signedIn);
    const all = () => readCsv('workspace', months[0]!.startMs - dayMs, now, 'traces');
    const options = { timeout: 30_000, interval: 250 };
    await vi.waitFor(async () => expect((await all()).traces).toBe(starts.length), options);
  });
  afterAll(() => signedIn?.close());
  let page: Page;
  beforeEach(async () => {
    page = await signedIn.openPage();
  });

  /** Returns the CSV of the API. */
  async function readCsv(group: string, startMs: number, endMs: number, kind = 'tokens') {
    const headers = { 'x-api-key': runlake.apiKey };
    const [workspace] = await (await fetch(`${runlake.url}/api/v1/workspaces`, { headers })).json();
    const query = new URLSearchParams({
      ...{ start_time: new Date(startMs).toISOString(), end_time: new Date(endMs).toISOString() },
      ...{ workspace_ids: workspace.id, group_by: group, kind },
    });
    const url = `${runlake.url}/api/v1/orgs/current/billing/granular-usage/export?${query}`;
    const text = await (await fetch(url, { headers })).text();
    return { text, traces: sum(parse(text, { columns: true }).map((row) => Number(column(row, 'Traces')))) };
  }
  const column = (row: unknown, name: string) => (row as Record<string, string>)[name] ?? '';
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  const table = () => page.getByRole('region', { name: 'Usage by group' });
  const cellsOf = async (name: RegExp) => table().getByRole('row', { name }).getByRole('cell').allTextContents();

  async function download() {
    const [file] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'CSV' }).click(),
    ]);
    return { name: file.suggestedFilename(), text: await readFile(await file.path(), 'utf8') };
  }
  /** Opens the screen and waits for tokens and costs. */
  async function open(search: string): Promise<void> {
    await page.goto(`/usage?${search}`);
    const figures = async () => (await cellsOf(/^Total/)).slice(0, 3).join(' ');
    // Tokens of months are twelve reports.
    await expect.poll(figures, { timeout: 30_000 }).toMatch(/^[\d,]+ [\d,]+ \$/);
  }

  it('shows calendar months in UTC wherever the viewer is, and the CSV has the same numbers', async () => {
    const context = await openContext(signedIn.browser, runlake.url, { timezoneId: 'Pacific/Auckland' });
    page = await context.newPage();
    await signIn(page, runlake.apiKey, '/usage');
    await page.getByLabel('Range').selectOption({ label: 'Last 12 months, by month' });
    await page.getByText('months in UTC').waitFor();
    await open('range=12m&group=project');
    const months = listBuckets('12m', Date.now()).map(({ startMs }) => monthOf(startMs));
    const headers = (await table().getByRole('columnheader').allTextContents()).slice(5);
    expect(headers).toEqual([...months].reverse());
    const expected = (start: (index: number) => boolean) =>
      months.map((month) => starts.filter((ms, index) => start(index) && monthOf(ms) === month).length);
    const shown = async (name: RegExp) =>
      (await cellsOf(name))
        .slice(4)
        .map((text) => (text === '·' ? 0 : Number(text)))
        .reverse();
    expect(await shown(/^Total/)).toEqual(expected(() => true));
    expect(await shown(/^steady/)).toEqual(expected((index) => index % 4 !== 0));
    const [traces, tokens, cost] = await cellsOf(/^Total/);
    const count = sum(expected(() => true));
    expect([traces, tokens, cost]).toEqual([
      `${count}`,
      (count * 10).toLocaleString('en'),
      `$${(count / 4).toFixed(2)}`,
    ]);
    await expectAccessible(page);

    const { name, text } = await download();
    expect(name).toMatch(/^usage-by-project-\d{4}-\d\d-01-to-\d{4}-\d\d-01\.csv$/);
    const rows = parse(text, { columns: true });
    for (const [at, month] of months.entries()) {
      const ofMonth = rows.filter((row) => column(row, 'Time Bucket Start') === `${month}-01T00:00:00Z`);
      expect(sum(ofMonth.map((row) => Number(column(row, 'Traces'))))).toBe(expected(() => true)[at]);
      for (const row of ofMonth) {
        expect(column(row, 'Time Bucket End')).toMatch(/^\d{4}-\d\d-01T00:00:00Z$/);
        expect(column(row, 'Total Tokens')).toBe(String(Number(column(row, 'Traces')) * 10));
      }
    }
    expect(sum(rows.map((row) => Number(column(row, 'Traces'))))).toBe(count);
    await context.close();
  });

  it('shows the local start of hours, also where it is not a full hour', async () => {
    const context = await openContext(signedIn.browser, runlake.url, { timezoneId: 'Asia/Kolkata' });
    page = await context.newPage();
    await signIn(page, runlake.apiKey, '/usage?range=24h');
    await open('range=24h');
    const headers = (await table().getByRole('columnheader').allTextContents()).slice(5);
    expect(headers).toHaveLength(24);
    for (const header of headers) expect(header).toMatch(/^\d\d:30$/);
    await context.close();
  });

  it('ends with the present hour when it is read again', async () => {
    // The clock is that of all pages of a context.
    const context = await openContext(signedIn.browser, runlake.url);
    page = await context.newPage();
    await page.clock.install();
    await signIn(page, runlake.apiKey, '/usage?range=24h');
    await open('range=24h');
    const newest = async () => (await table().getByRole('columnheader').allTextContents())[5];
    const before = await newest();
    await page.clock.fastForward('03:00:00');
    await page.evaluate(() => window.dispatchEvent(new Event('visibilitychange')));
    await eventually(
      async () => (Number(((await newest()) ?? '').slice(0, 2)) + 24 - Number(before?.slice(0, 2))) % 24,
    ).toBe(3);
    await context.close();
  });

  it.each(['24h', '31d', '13w'] as const)('saves the CSV that the API exports: %s', async (range) => {
    const buckets = listBuckets(range, Date.now());
    for (const group of ['project', 'user', 'api_key']) {
      await open(`range=${range}&group=${group}`);
      const { text } = await download();
      const exported = await readCsv(group, buckets[0]!.startMs, buckets.at(-1)!.endMs - 1);
      expect(text).toBe(exported.text);
      expect(exported.traces).toBeGreaterThan(0);
      expect((await cellsOf(/^Total/))[0]).toBe(String(exported.traces));
    }
  });

  it('is shown in a browser whose language is not valid, as that of Chromium if LANG is C', async () => {
    const context = await openContext(signedIn.browser, runlake.url, { locale: 'en-US@posix' });
    page = await context.newPage();
    await signIn(page, runlake.apiKey, '/usage');
    await page.getByRole('img', { name: /^Chart of traces/ }).waitFor();
    await context.close();
  });

  it('saves only traces for a key that may not read runs', async () => {
    page = await openWithPermissions(signedIn, ['organization:read'], '/usage?group=workspace');
    await table().waitFor();
    const buckets = listBuckets('31d', Date.now());
    const exported = await readCsv('workspace', buckets[0]!.startMs, buckets.at(-1)!.endMs, 'traces');
    expect((await download()).text).toBe(exported.text);
    await page.context().close();
  });

  it('shows the largest of very many users, and the sum of the others', async () => {
    const [users, days] = [3_000, listBuckets('31d', Date.now())];
    await page.route('**/billing/granular-usage?*', (route) => {
      const usage = days.flatMap(({ startMs }) =>
        Array.from({ length: users }, (_, index) => ({
          time_bucket: new Date(startMs).toISOString(),
          dimensions: { user_id: `user ${index}`, user_email: `user ${index}` },
          ...{ traces: index + 1, prompt_tokens: 1, completion_tokens: 1, total_tokens: 2, total_cost: null },
        })),
      );
      return route.fulfill({ json: { stride: { days: 1, hours: 0 }, usage } });
    });
    await open('range=31d&group=user');
    const total = days.length * ((users * (users + 1)) / 2);
    expect((await cellsOf(/^Total/))[0]).toBe(total.toLocaleString('en'));
    expect(await table().getByRole('row').count()).toBe(200 + 2);
    const [largest] = await cellsOf(/^user 2999/);
    expect(largest).toBe((days.length * users).toLocaleString('en'));
    const others = users - 199;
    expect((await cellsOf(new RegExp(`^${others.toLocaleString('en')} others`)))[0]).toBe(
      (days.length * ((others * (others + 1)) / 2)).toLocaleString('en'),
    );
    expect((await download()).text.split('\r\n')).toHaveLength(users * days.length + 2);
  });

  it('counts all workspaces, although the API takes 200 in a request', async () => {
    await open('range=12m');
    const total = (await cellsOf(/^Total/))[0];
    await page.route('**/api/v1/workspaces', async (route) => {
      const own = await (await route.fetch()).json();
      const others = Array.from({ length: 250 }, (_, index) => ({
        ...own[0],
        id: randomUUID(),
        display_name: `${index}`,
      }));
      await route.fulfill({ json: [...others, ...own] });
    });
    await open('range=12m');
    await eventually(async () => (await cellsOf(/^Total/))[0]).toBe(total);
  });
});
