/**
 * Benefit of the roll-up: a month of usage by project over HTTP, against the same request answered by counting the
 * distinct traces of that month.
 *
 * 1,000,000 traces of three runs each over three months, 20 projects, 50 users, 100 keys. Three servers respond to the
 * same request in turns, under the same conditions, and must return the same bytes: the product, which reads the
 * roll-up in ClickHouse; one that counts in `traces`, the facts, which already has one row a trace (`ratio`); and one
 * that counts distinct traces in `runs`, as a product without either would (`ratio_over_runs`). Keep-alive, key, names
 * from Postgres and JSON are the same for all.
 */
import assert from 'node:assert/strict';
import { withEngines } from './engines.ts';
import { median, ownCost, printFigures, quantile, round, timedMs } from './figures.ts';
import { counting } from './usage-load/counting.ts';
import { fillUsage, type UsageLoad } from './usage-load/fill.ts';
import { countTraces, serveUsage } from './usage-load/servers.ts';

const load: UsageLoad = {
  traces: 1_000_000,
  runsPerTrace: 3,
  startSeconds: Date.UTC(2026, 0, 1) / 1_000,
  days: 90,
  projects: 20,
  users: 50,
  keys: 100,
};
const month = { start: '2026-02-01T00:00:00Z', end: '2026-03-01T00:00:00Z', groupBy: 'project' } as const;
const rounds = 60;
const requestsPerRound = 5;

await withEngines(async (engines) => {
  const filled = await fillUsage(engines, load);
  const servers = [
    await serveUsage(engines, filled),
    await serveUsage(engines, filled, counting.runs),
    await serveUsage(engines, filled, counting.traces),
  ];
  const times: number[][] = servers.map(() => []);
  const answers = new Set<string>();
  for (let done = -5; done < rounds; done++) {
    for (const [index, { ask }] of servers.entries()) {
      for (let sent = 0; sent < (index === 0 ? requestsPerRound : 1); sent++) {
        const tookMs = await timedMs(async () => answers.add(await ask(month)));
        if (done >= 0) times[index]?.push(tookMs);
      }
    }
  }
  for (const { close } of servers) await close();
  assert.equal(answers.size, 1, 'the answers differ');
  assert.ok(countTraces([...answers].join()) > 0, 'no usage');
  const [http = [], runs = [], traces = []] = times;
  printFigures({
    bench: 'usage',
    ratio: round(median(traces) / median(http)),
    target: 2.5,
    higher_is_better: true,
    p50_ms: round(median(http)),
    p99_ms: round(quantile(http, 0.99)),
    p50_target_ms: 25,
    p99_target_ms: 60,
    p50_counting_runs_ms: round(median(runs)),
    p50_counting_trace_table_ms: round(median(traces)),
    ratio_over_runs: round(median(runs) / median(http)),
    traces: load.traces,
    runs: load.traces * load.runsPerTrace,
    ...ownCost(),
    insert_seconds: round(filled.insertSeconds),
    roll_up_seconds: round(filled.rollUpSeconds),
  });
});
