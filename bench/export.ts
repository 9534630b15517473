/**
 * Speed of a bulk export: 1,000,000 runs of 1 KB of one day, from the request to the export's end, with the upload to
 * the S3 store, against ClickHouse writing the same query directly to one local Parquet file (zstd, over HTTP), in
 * turns (`ratio`).
 *
 * A separate stack, with `runlake api` and `runlake exports` as processes. Memory is the maximum of the worker and its
 * encoder together, for that day, for 5,000,000 such runs, and for 1 GB of runs of 50 KB: the second within 15
 * % of the first, none above 700 MB. The shares of the stages add up to more than one because they overlap. The p99
 * delay of the event loop must be below 50 ms.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { costExpressions } from '../pipelines/costs/cost-sql.ts';
import { buildSelectList } from '../pipelines/exports/chunk-columns.ts';
import { memberOrder } from '../pipelines/exports/members.ts';
import { exportFields } from '../schemas/parquet/run-columns.ts';
import { askRunlake } from '../test/ask-runlake.ts';
import { median, printFigures, round, timedMs } from './figures.ts';
import { memoryMib } from './ingest-load/process-figures.ts';
import { insertRuns } from './run-load/insert-runs.ts';
import { withStack } from './stack.ts';
import { atEnd, startBenchRole } from './started.ts';

const scale = Number(process.env.BENCH_SCALE ?? 1);
const runs = { day: 1_000_000 * scale, large: 5_000_000 * scale, wide: 20_000 * scale };
const rowsPerInsert = 50_000;
const turns = 3;
const daySeconds = 86_400;
const targets = { memoryGrowth: 1.15, memoryMib: 700, loopDelayMs: 50 };

await withStack(
  async ({ environment, clickhouse, apiKey, s3 }) => {
    const settings = { ...environment, RUNLAKE_ALLOW_PRIVATE_ENDPOINTS: 'true' };
    const api = await startBenchRole('api', settings);
    const worker = await startBenchRole('exports', settings);
    const ask = <T>(path: string, body?: object) => askRunlake<T>({ url: api.url, apiKey }, path, { body });
    const [{ id: tenant } = { id: '' }] = await ask<{ id: string }[]>('/workspaces');
    const { id: destination } = await ask<{ id: string }>('/bulk-exports/destinations', {
      destination_type: 's3',
      display_name: 'bench',
      config: { bucket_name: s3.bucket, prefix: 'bench', region: s3.region, endpoint_url: s3.endpoint },
      credentials: { access_key_id: s3.writerAccessKeyId, secret_access_key: s3.writerSecretAccessKey },
    });
    const folder = mkdtempSync(join(tmpdir(), 'runlake-bench-floor-'));
    atEnd(() => rmSync(folder, { recursive: true, force: true }));
    const beginSeconds = Math.floor(Date.now() / 1_000 / daySeconds - 2) * daySeconds;

    /** Creates a project with runs evenly over the day. */
    const filled = async (name: string, total: number, bytes: number) => {
      const { id: project } = await ask<{ id: string }>('/sessions', { name });
      const load = { tenant, project, total, beginSeconds, spanSeconds: daySeconds, bytes };
      for (let first = 0; first < total; first += rowsPerInsert) {
        await insertRuns(clickhouse, load, first, Math.min(rowsPerInsert, total - first));
      }
      return project;
    };

    /** Exports from the request to the end. */
    const exported = async (project: string, rows: number) => {
      const tookMs = await timedMs(async () => {
        const { id } = await ask<{ id: string }>('/bulk-exports', {
          bulk_export_destination_id: destination,
          session_id: project,
          start_time: new Date(beginSeconds * 1_000).toISOString(),
          end_time: new Date((beginSeconds + daySeconds) * 1_000).toISOString(),
          format_version: 'v2_beta',
        });
        for (;;) {
          const read = await ask<{ status: string; progress: { rows_written: number } }>(`/bulk-exports/${id}`);
          if (read.status !== 'CREATED' && read.status !== 'RUNNING') {
            assert.deepEqual([read.status, read.progress.rows_written], ['COMPLETED', rows]);
            return;
          }
          await pause(50);
        }
      });
      return tookMs;
    };

    /** Runs the same query with ClickHouse alone, into one file. */
    const floor = (project: string) =>
      timedMs(() =>
        clickhouse.queryToFile({
          name: 'bench-floor',
          sql: `WITH ${costExpressions} SELECT ${buildSelectList(exportFields)} FROM runs FINAL
            PREWHERE tenant_id = {tenant:UUID} AND session_id = {project:UUID}
              AND start_time >= toDateTime({begin:UInt32}, 'UTC') AND start_time < toDateTime({end:UInt32}, 'UTC')
            WHERE isNull(deleted_at) ORDER BY ${memberOrder}`,
          params: { tenant, project, begin: beginSeconds, end: beginSeconds + daySeconds },
          settings: { output_format_parquet_compression_method: 'zstd' },
          format: 'Parquet',
          path: join(folder, 'floor.parquet'),
          timeoutMs: 600_000,
        }),
      );

    const day = await filled('a day of small runs', runs.day, 1_000);
    const watch = watchMemory(worker.pid);
    atEnd(watch.end);
    const [mine, theirs]: [number[], number[]] = [[], []];
    const before = await stages(worker.url);
    for (let turn = 0; turn < turns; turn++) {
      theirs.push(await floor(day));
      mine.push(await exported(day, runs.day));
    }
    const after = await stages(worker.url);
    const dayMib = watch.peakMib();
    const large = await filled('a day of many small runs', runs.large, 1_000);
    watch.begin();
    await exported(large, runs.large);
    const largeMib = watch.peakMib();
    const wide = await filled('a day of large runs', runs.wide, 50_000);
    watch.begin();
    await exported(wide, runs.wide);
    const wideMib = watch.peakMib();

    const total = mine.reduce((sum, ms) => sum + ms / 1_000, 0);
    const share = (stage: string) => round(((after.get(stage) ?? 0) - (before.get(stage) ?? 0)) / total);
    printFigures({
      bench: 'export',
      ratio: round(median(theirs) / median(mine)),
      target: 0.5,
      higher_is_better: true,
      rows_per_second: round(runs.day / (median(mine) / 1_000), 0),
      floor_rows_per_second: round(runs.day / (median(theirs) / 1_000), 0),
      peak_mib: round(dayMib, 0),
      peak_mib_of_5_times_as_many: round(largeMib, 0),
      peak_mib_of_50_kb: round(wideMib, 0),
      memory_growth: round(largeMib / dayMib),
      memory_growth_target: targets.memoryGrowth,
      peak_mib_target: targets.memoryMib,
      share_of_find: share('find'),
      share_of_read: share('read'),
      share_of_encode: share('encode'),
      share_of_upload: share('upload'),
      event_loop_delay_p99_ms: round(await loopDelayMs(worker.url)),
      event_loop_delay_p99_target_ms: targets.loopDelayMs,
      runs: runs.day,
      turns,
    });
  },
  ['s3'],
);

/** Resident memory of a process and its children together, sampled five times a second. */
function watchMemory(pid: number) {
  let peak = 0;
  const look = () => {
    let sum = 0;
    for (const each of [pid, ...childrenOf(pid)]) {
      try {
        sum += memoryMib(each, 'VmRSS');
      } catch {
        // It has exited in the meantime.
      }
    }
    peak = Math.max(peak, sum);
  };
  const timer = setInterval(look, 200);
  return {
    begin: () => {
      peak = 0;
    },
    peakMib: () => peak,
    end: () => clearInterval(timer),
  };
}

/** Child processes of `pid`. Linux only. */
function childrenOf(pid: number): number[] {
  return readdirSync('/proc').flatMap((name) => {
    try {
      const [, parent] = /\) \S (\d+) /.exec(readFileSync(`/proc/${name}/stat`, 'utf8')) ?? [];
      return Number(parent) === pid ? [Number(name)] : [];
    } catch {
      return [];
    }
  });
}

/** Total seconds in each stage so far. */
async function stages(url: string): Promise<ReadonlyMap<string, number>> {
  const lines = (await (await fetch(`${url}/metrics`)).text()).split('\n');
  const sums = lines.flatMap((line) => {
    const [, stage, value] = /^runlake_export_stage_seconds_sum\{.*stage="(\w+)".*\} (\S+)/.exec(line) ?? [];
    return stage === undefined ? [] : [[stage, Number(value)] as const];
  });
  return new Map(sums);
}

async function loopDelayMs(url: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const [, seconds] = /^runlake_nodejs_eventloop_lag_p99_seconds(?:\{.*\})? (\S+)/m.exec(text) ?? [];
  return Number(seconds) * 1_000;
}
