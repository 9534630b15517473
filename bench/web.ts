/**
 * The dashboard in Chromium on a project of 2,000,000 runs of 1 KB (400,000 traces) in the last thirty days, on a warm
 * server: the time from the navigation to the first rows of the table of traces, to the tree of a trace of 1,000 and of
 * 10,000 runs; the time between frames while the table is scrolled; the heap after 100 navigations.
 *
 * `ratio` is the smallest of target divided by measured value; all targets are met if it is at least 1.
 */
import type { Page } from 'playwright-core';
import { openClickHouse } from '../infra/clickhouse/client.ts';
import { createLogger } from '../infra/telemetry/logger.ts';
import { askRunlake } from '../test/ask-runlake.ts';
import type { RunlakeProcess } from '../test/runlake-process.ts';
import { openContext, signIn, startBrowser } from '../test/web/browser.ts';
import { buildLargeTrace, buildTrace, sendRuns } from '../test/web/send-traces.ts';
import { printFigures, quantile, round } from './figures.ts';
import { insertRuns } from './run-load/insert-runs.ts';
import { startBenchRunlake, started } from './started.ts';

const runs = Number(process.env.BENCH_RUNS ?? 2_000_000);
const rounds = Number(process.env.BENCH_ROUNDS ?? 15);
const navigations = Number(process.env.BENCH_NAVIGATIONS ?? 100);
const rowsPerInsert = 50_000;
const days = 30;
const targets = { table_ms: 500, trace_1000_ms: 400, trace_10000_ms: 1500, frame_p95_ms: 50, heap_growth: 1.2 };

const runlake = await startBenchRunlake();
const browser = await started(startBrowser(), (open) => open.close());
const project = await fillProject(runlake);
const small = buildLargeTrace('traces', Date.now() - 120_000, 1_000);
const large = buildLargeTrace('traces', Date.now() - 120_000, 10_000);
for (const trace of [small, large]) await sendRuns(runlake.url, runlake.apiKey, trace);

const context = await openContext(browser, runlake.url);
// The compiler of this file calls this function around each named function, also in those that run on the page.
await context.addInitScript('globalThis.__name = (named) => named');
const page = await context.newPage();
await signIn(page, runlake.apiKey);
const table = `/projects/${project}?range=7d`;
const figures = {
  table_ms: await measureOpen(page, table, '.virtual-row'),
  trace_1000_ms: await measureOpen(page, `/runs/${small[0]?.id}`, '.tree-row'),
  trace_10000_ms: await measureOpen(page, `/runs/${large[0]?.id}`, '.tree-row'),
  frame_p95_ms: await measureFrames(page, table),
  heap_growth: await measureHeap(page, table),
};
const names = Object.keys(targets) as (keyof typeof targets)[];
const ratio = Math.min(...names.map((name) => targets[name] / Math.max(figures[name], 0.001)));
printFigures({
  bench: 'web',
  ratio: round(ratio),
  target: 1,
  higher_is_better: true,
  ...Object.fromEntries(names.map((name) => [name, round(figures[name])])),
  ...Object.fromEntries(names.map((name) => [`${name}_target`, targets[name]])),
  runs,
  navigations,
});

/** Fills a project as the sink would, and returns its id. */
async function fillProject(runlake: RunlakeProcess): Promise<string> {
  await sendRuns(runlake.url, runlake.apiKey, buildTrace('busy', Date.now(), { name: 'first', until: 10 }));
  const [{ id, tenant_id }] = await askRunlake(runlake, '/sessions?name=busy');
  const logger = createLogger('warn', 'bench');
  const clickhouse = openClickHouse({ url: runlake.stores().clickhouseUrl, logger, timeoutMs: 600_000 });
  try {
    const spanSeconds = days * 86_400;
    const beginSeconds = Math.floor(Date.now() / 1_000) - spanSeconds;
    const load = { tenant: tenant_id, project: id, total: runs, beginSeconds, spanSeconds, bytes: 1_000, usage: true };
    for (let first = 0; first < runs; first += rowsPerInsert)
      await insertRuns(clickhouse, load, first, Math.min(rowsPerInsert, runs - first));
  } finally {
    await clickhouse.close();
  }
  return id;
}

/** The median time from the start of a navigation until `selector` is rendered, on the clock of the page. */
async function measureOpen(page: Page, path: string, selector: string): Promise<number> {
  const times: number[] = [];
  for (let done = -2; done < rounds; done++) {
    await page.goto(path, { waitUntil: 'commit' });
    const ms = await page.evaluate(
      (wanted) =>
        new Promise<number>((resolve) => {
          const look = () => {
            if (document.querySelector(wanted)) resolve(performance.now());
            else requestAnimationFrame(look);
          };
          look();
        }),
      selector,
    );
    if (done >= 0) times.push(ms);
  }
  return quantile(times, 0.5);
}

/** The 95th percentile of the time between frames while the table is scrolled, which also loads pages. */
async function measureFrames(page: Page, path: string): Promise<number> {
  await page.goto(path);
  await page.locator('.virtual-row').first().waitFor();
  const frames = await page.evaluate(
    () =>
      new Promise<number[]>((resolve) => {
        const scroller = document.querySelector('.virtual-scroll') as HTMLElement;
        const times: number[] = [];
        let before = performance.now();
        const step = (now: number) => {
          times.push(now - before);
          before = now;
          scroller.scrollTop += 60;
          if (times.length < 400) requestAnimationFrame(step);
          else resolve(times.slice(1));
        };
        requestAnimationFrame(step);
      }),
  );
  return quantile(frames, 0.95);
}

/** How many times larger the heap is after the navigations within the application than after the first ten of them. */
async function measureHeap(page: Page, path: string): Promise<number> {
  const session = await page.context().newCDPSession(page);
  const heapBytes = async () => {
    await session.send('HeapProfiler.collectGarbage');
    return (await session.send('Runtime.getHeapUsage')).usedSize;
  };
  await page.goto(path);
  let begin = 0;
  for (let done = 0; done < navigations; done++) {
    await page
      .locator('.virtual-row')
      .nth(done % 10)
      .click();
    await page.locator('.tree-row').first().waitFor();
    await page.goBack();
    await page.locator('.virtual-row').first().waitFor();
    if (done === 9) begin = await heapBytes();
  }
  return (await heapBytes()) / begin;
}
