/** `kill -9` of the process that writes a bulk export, at each step of a run; another process takes over by itself. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { until } from '../infra/until.ts';
import { type Death, deaths } from '../pipelines/exports/deaths.ts';
import { day, openWorkshop, type Workshop } from '../pipelines/exports/workshop.ts';

vi.setConfig({ testTimeout: 180_000 });

const at = day('2026-03-05');
const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
const fixture = fileURLToPath(new URL('./export-worker.fixture.ts', import.meta.url));

let shop: Workshop;
let ids: string[];
let undisturbed: Map<string, string>;
const running = new Set<ChildProcess>();

function startWorker(death?: Death) {
  const { clickhouseUrl, databaseUrl, environment } = shop.stores;
  const redisUrl = environment.RUNLAKE_REDIS_URL;
  const workFolder = join(shop.workRoot, 'processes');
  const told = { clickhouseUrl, databaseUrl, redisUrl, bucketRoot: shop.bucketRoot, workFolder, death };
  const child = spawn(process.execPath, ['--import', tsx, fixture, JSON.stringify(told)], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  running.add(child);
  const exited = once(child, 'exit').then(([, signal]) => {
    running.delete(child);
    return signal as NodeJS.Signals | null;
  });
  return { child, exited };
}

beforeAll(async () => {
  shop = await openWorkshop({ exportsPerWorkspace: 1_000 });
  ids = await shop.store(34, at);
  const made = await shop.create();
  await shop.work();
  undisturbed = await filesOf(made.id);
});
afterEach(async () => {
  for (const child of running) child.kill('SIGKILL');
  await until('they are gone', () => running.size === 0);
});
afterAll(() => shop?.close());

/** Names of parts and what they hold. */
async function filesOf(exportId: string): Promise<Map<string, string>> {
  const objects = [...(await shop.objects())].filter(([key]) => key.includes(exportId) && key.endsWith('.parquet'));
  return new Map(objects.map(([key, body]) => [key.slice(-'000001.parquet'.length), body.toString('base64')]));
}

const filesRecorded = (exportId: string) =>
  shop.database.query<{ part: number; created_at: string; sha256: string }>(
    `SELECT part, f.created_at, sha256 FROM bulk_export_files AS f JOIN bulk_export_runs AS r ON r.id = bulk_export_run_id
     WHERE bulk_export_id = $1 ORDER BY part`,
    [exportId],
  );

/** One time of each step: what differs by the number of parts that are done is told without a process. */
const killed = deaths.filter(({ step, time }) => time === (step === 'count' ? 1 : 2));

describe('kill -9 of the worker', () => {
  test.each(killed)('$when $step: another one goes on, and nothing finished is done twice', async (death) => {
    const made = await shop.create();
    const first = startWorker(death);
    expect(await first.exited).toBe('SIGKILL');
    const recorded = await filesRecorded(made.id);
    startWorker();
    await until('the export ends', async () => (await shop.read(made.id)).finishedAt !== null, 90_000);
    expect(await shop.read(made.id)).toMatchObject({ status: 'COMPLETED', rowsWritten: 34, retries: 0, files: 4 });
    expect(await shop.exportedIds(made.id)).toEqual(ids);
    expect(await filesOf(made.id)).toEqual(undisturbed);
    expect((await filesRecorded(made.id)).slice(0, recorded.length)).toEqual(recorded);
    // What the dead one had on the disk is given back.
    expect(await readdir(join(shop.workRoot, 'processes'))).toHaveLength(1);
  });
});
