/**
 * Usage at scale: every stride by every grouping over HTTP, against counting the distinct traces of the same range in
 * `traces`, the facts.
 *
 * 10,000,000 traces over a year, 50 projects, 200 users, 400 keys. For each of the twenty-four reports two servers
 * respond in turns, under the same conditions, and must return the same bytes: the product and the one that counts.
 * Targets: a month and longer at least 2.5 times faster (`ratio`: the worst of them); p99 within 100 ms for all; rows of
 * the roll-up at most 2 % of the facts.
 */
import assert from 'node:assert/strict';
import { groupings } from '../pipelines/usage/report-query.ts';
import { withEngines } from './engines.ts';
import { median, ownCost, printFigures, quantile, round, timedMs } from './figures.ts';
import { counting } from './usage-load/counting.ts';
import { fillUsage, type UsageLoad, yearOfUsage } from './usage-load/fill.ts';
import { countTraces, serveUsage } from './usage-load/servers.ts';

const load: UsageLoad = { ...yearOfUsage, traces: 10_000_000 };
/**
 * In days up to the end of the load. The shortest has hourly buckets, the last yearly ones, week and month daily ones.
 */
const ranges = { hours: 23 / 24, week: 7, month: 30, quarter: 90, year: 365, longer: 400 } as const;
type Range = keyof typeof ranges;
const requests = 100;
const countings: Readonly<Record<Range, number>> = { hours: 9, week: 9, month: 9, quarter: 5, year: 3, longer: 3 };

interface Report {
  readonly p50: number;
  readonly p99: number;
  readonly counting: number;
  readonly ratio: number;
}

await withEngines(async (engines) => {
  const filled = await fillUsage(engines, load);
  const product = await serveUsage(engines, filled);
  const floor = await serveUsage(engines, filled, counting.traces);
  const endMs = (load.startSeconds + load.days * 86_400) * 1_000;
  const reports: Record<string, Report> = {};
  for (const range of Object.keys(ranges) as Range[]) {
    for (const groupBy of groupings) {
      const start = new Date(endMs - ranges[range] * 86_400_000).toISOString();
      const question = { start, end: new Date(endMs).toISOString(), groupBy };
      const answers = new Set<string>();
      const [http, counted]: [number[], number[]] = [[], []];
      for (let done = -1; done < countings[range]; done++) {
        for (let sent = 0; sent < requests / countings[range]; sent++) {
          const tookMs = await timedMs(async () => answers.add(await product.ask(question)));
          if (done >= 0) http.push(tookMs);
        }
        const tookMs = await timedMs(async () => answers.add(await floor.ask(question)));
        if (done >= 0) counted.push(tookMs);
      }
      assert.equal(answers.size, 1, `the answers differ: ${range} by ${groupBy}`);
      assert.ok(countTraces([...answers].join()) > 0, `no usage: ${range} by ${groupBy}`);
      reports[`${range}_by_${groupBy}`] = {
        p50: round(median(http)),
        p99: round(quantile(http, 0.99)),
        counting: round(median(counted)),
        ratio: round(median(counted) / median(http)),
      };
    }
  }
  for (const { close } of [product, floor]) await close();
  const [rows] = await engines.clickhouse.query<{ facts: number; kept: number; entries: number }>({
    name: 'bench-rows',
    sql: `SELECT (SELECT count() FROM traces FINAL) AS facts,
      (SELECT count() FROM usage_hourly FINAL) + (SELECT count() FROM usage_daily FINAL) AS kept,
      (SELECT sum(length(ids)) FROM usage_hourly FINAL) + (SELECT sum(length(ids)) FROM usage_daily FINAL) AS entries`,
  });
  const worst = (of: (name: string) => boolean) =>
    Math.min(...Object.entries(reports).flatMap(([name, { ratio }]) => (of(name) ? [ratio] : [])));
  const long = (name: string) => !name.startsWith('hours') && !name.startsWith('week');
  const week = (name: string) => name.startsWith('week');
  printFigures({
    bench: 'usage-year',
    ratio: worst(long),
    target: 2.5,
    higher_is_better: true,
    week_ratio: worst(week),
    worst_p99_ms: Math.max(...Object.values(reports).map(({ p99 }) => p99)),
    p99_target_ms: 100,
    rows_per_fact: round(rows!.kept / rows!.facts, 5),
    rows_per_fact_target: 0.02,
    list_entries_per_fact: round(rows!.entries / rows!.facts, 3),
    reports,
    traces: load.traces,
    ...ownCost(),
    insert_seconds: round(filled.insertSeconds),
    roll_up_seconds: round(filled.rollUpSeconds),
  });
});
