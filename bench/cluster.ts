/**
 * Cost of a cluster: the same work on one ClickHouse server and on a cluster of two, on the same cores. More machines
 * give more throughput; this is what distribution itself costs (`ratio`: the time on two shards over that on one, the
 * worst of the four).
 *
 * In turns, so that both see the same conditions: the sink stores batches of 10,000 runs of 1 KB; a roll-up run counts
 * 720 hours of 200,000 traces; a month of usage by project and a page of the 100 newest of 300,000 runs over HTTP.
 * Usage must be the same on both, and each page must have 100 runs.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { ClickHouse } from '../infra/clickhouse/clickhouse.ts';
import { readDiskBytes } from '../infra/clickhouse/server-queries.ts';
import { markHoursDirty } from '../pipelines/usage/mark-hours-dirty.ts';
import { runRollUp } from '../pipelines/usage/rollup.ts';
import { runEvents } from '../schemas/topics.ts';
import type { FreshStores } from '../test/engines/stores.ts';
import { openDrivenSink, toRecordsAtOffset } from '../test/pipelines/ingest/sink/driven-sink.ts';
import { type BenchEngines, withTwoShards } from './engines.ts';
import { median, printFigures, round, timedMs } from './figures.ts';
import { makeRuns } from './ingest-load/bodies.ts';
import { encodeParsed, parsed } from './ingest-load/records.ts';
import { insertRuns } from './run-load/insert-runs.ts';
import { servePages } from './run-load/serve-pages.ts';
import { fillUsage, hoursOf, type UsageLoad } from './usage-load/fill.ts';
import { countTraces, serveUsage } from './usage-load/servers.ts';

const scale = Number(process.env.BENCH_SCALE ?? 1);
const batches = 12;
const batchRows = 10_000 * scale;
const rollUps = 7;
const rounds = 30;
const pageRuns = 300_000 * scale;
const pageDays = 30;
const load: UsageLoad = {
  traces: 200_000 * scale,
  runsPerTrace: 3,
  startSeconds: Date.UTC(2026, 0, 1) / 1_000,
  days: 30,
  projects: 20,
  users: 50,
  keys: 100,
};
const month = { start: '2026-01-01T00:00:00Z', end: '2026-01-31T00:00:00Z', groupBy: 'project' } as const;

await withTwoShards(async (one, two) => {
  const sides = [await prepare(one), await prepare(two)] as const;
  await Promise.all([one, two].map(waitForMerges));
  const before = await Promise.all([one, two].map(readCosts));
  const ingest = await inTurns(batches, (side) => side.storeBatch());
  await Promise.all([one, two].map(waitForMerges));
  const after = await Promise.all([one, two].map(readCosts));
  const perRun = (cost: 'cpuMicros' | 'diskBytes') =>
    after.map((costs, index) => round((costs[cost] - before[index]![cost]) / ((batches + 1) * batchRows), 1));
  // Counts the hours of the stored batches, which are not those of the load.
  await Promise.all([one, two].map((engines) => runRollUp(engines)));
  const rollUp = await inTurns(rollUps, (side) => side.rollUp());
  await Promise.all([one, two].map(waitForMerges));
  const usage = await inTurns(rounds, (side) => side.usage());
  const page = await inTurns(rounds, (side) => side.page());
  const reported = await sides[0].askUsage();
  assert.ok(countTraces(reported) > 0, 'no usage');
  assert.equal(await sides[1].askUsage(), reported, 'usage differs');
  for (const { close } of sides) await close();

  /** Median time of the work on one and on two shards, in milliseconds. The first turn warms up. */
  async function inTurns(turns: number, work: (side: (typeof sides)[number]) => Promise<unknown>) {
    const times: [number[], number[]] = [[], []];
    for (let turn = -1; turn < turns; turn++) {
      // The side that is second in one turn is first in the next.
      for (const index of turn % 2 === 0 ? [0, 1] : [1, 0]) {
        const tookMs = await timedMs(() => work(sides[index]!));
        if (turn >= 0) times[index]!.push(tookMs);
      }
    }
    return { one: median(times[0]), two: median(times[1]), ratio: median(times[1]) / median(times[0]) };
  }

  printFigures({
    bench: 'cluster',
    ratio: round(Math.max(...[ingest, rollUp, usage, page].map(({ ratio }) => ratio))),
    target: 1.2,
    higher_is_better: false,
    ingest_ratio: round(ingest.ratio),
    roll_up_ratio: round(rollUp.ratio),
    usage_ratio: round(usage.ratio),
    page_ratio: round(page.ratio),
    ingest_ms: [ingest.one, ingest.two].map((ms) => round(ms, 1)),
    roll_up_ms: [rollUp.one, rollUp.two].map((ms) => round(ms, 1)),
    usage_ms: [usage.one, usage.two].map((ms) => round(ms, 2)),
    page_ms: [page.one, page.two].map((ms) => round(ms, 2)),
    batch_rows: batchRows,
    clickhouse_cpu_us_per_run: perRun('cpuMicros'),
    disk_bytes_per_run: perRun('diskBytes'),
  });
});

/** CPU time of statements and merges, and disk use, over all servers. */
async function readCosts({ clickhouse }: BenchEngines) {
  const sql = `SELECT sum(value) AS micros FROM system.events WHERE event = 'OSCPUVirtualTimeMicroseconds'`;
  const cpu = await Promise.all(
    clickhouse.servers.map(({ query }) => query<{ micros: number }>({ name: 'bench-cpu', sql })),
  );
  const disk = await readDiskBytes(clickhouse);
  return {
    cpuMicros: cpu.reduce((sum, [row]) => sum + (row?.micros ?? 0), 0),
    diskBytes: [...disk.values()].reduce((sum, bytes) => sum + bytes, 0),
  };
}

/** Merges of one side would slow down the other. */
async function waitForMerges({ clickhouse }: BenchEngines): Promise<void> {
  const running = async ({ query }: ClickHouse) =>
    (await query<{ merges: number }>({ name: 'bench-merges', sql: 'SELECT count() AS merges FROM system.merges' }))[0]!
      .merges;
  const giveUpAtMs = performance.now() + 60_000;
  for (let idle = 0; idle < 5 && performance.now() < giveUpAtMs; await pause(200)) {
    const counts = await Promise.all(clickhouse.servers.map(running));
    idle = counts.every((merges) => merges === 0) ? idle + 1 : 0;
  }
}

async function prepare(engines: BenchEngines) {
  const { clickhouse, database } = engines;
  const { key, workspaceId } = await fillUsage(engines, load);
  const projectId = randomUUID();
  await database.execute('INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, $3)', [
    ...[projectId, workspaceId, 'page'],
  ]);
  const runs = {
    ...{ tenant: workspaceId, project: projectId, total: pageRuns, bytes: 1_000 },
    ...{ beginSeconds: Math.floor(Date.now() / 1_000) - pageDays * 86_400, spanSeconds: pageDays * 86_400 },
  };
  const rowsPerInsert = 50_000;
  for (let first = 0; first < pageRuns; first += rowsPerInsert)
    await insertRuns(clickhouse, runs, first, Math.min(rowsPerInsert, pageRuns - first));
  const [usage, pages] = [await serveUsage(engines, { key, workspaceId }), await servePages(engines, key)];
  const sink = await openDrivenSink({ stores: { clickhouse, database } as FreshStores, isShared: true });
  const owner = { tenantId: randomUUID(), projectId: randomUUID(), schemaId: sink.log.schemaId(runEvents) };
  // Records are encoded before they are measured.
  const encode = () =>
    encodeParsed(parsed(makeRuns(batchRows)), owner).map((value) => ({ key: owner.tenantId, value, headers: {} }));
  const encoded = Array.from({ length: batches + 1 }, encode);
  let stored = 0;
  return {
    async storeBatch() {
      const messages = encoded[stored / batchRows] as ReturnType<typeof encode>;
      await sink.deliver(runEvents, toRecordsAtOffset(stored, messages));
      stored += batchRows;
    },
    async rollUp() {
      await markHoursDirty(database, hoursOf(load, workspaceId));
      assert.equal((await runRollUp(engines)).hours, load.days * 24);
    },
    usage: () => usage.ask(month),
    askUsage: async () => (await usage.ask(month)).replaceAll(workspaceId, ''),
    async page() {
      const { runs: found } = JSON.parse(await pages.ask(projectId)) as { runs: unknown[] };
      assert.equal(found.length, 100);
    },
    async close() {
      await Promise.all([usage.close(), pages.close(), sink.close()]);
    },
  };
}
