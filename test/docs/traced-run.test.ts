import { randomUUID } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';
import { filesOfTracedRun, namedFiles } from './architecture-page.ts';

/**
 * Measures which files a run passes through, from HTTP to Parquet: the coverage of V8 in a Runlake process, with the
 * log in the process and an export to a folder. docs/decisions/0156 has the rule of counting.
 */

const built = new URL('../../dist/', import.meta.url).href;
const projectName = 'shop';
const idleMs = 5_000;
/** Files that work on every request or task, whatever it is about, and the commands that put the roles together. */
const mechanisms =
  /^(api\/command-line|infra\/(cache|clickhouse|config|errors|fairness|json|postgres|rate-limit|telemetry|timeouts))\//;
/** About 128 files, and a few whose functions run only sometimes. */
const maxFiles = 135;

/** Counts calls of functions in the process; on SIGUSR2 it writes the calls since the last signal to a file. */
const counter = `
  import { Session } from 'node:inspector';
  import { renameSync, writeFileSync } from 'node:fs';
  const session = new Session();
  let taken = 0;
  session.connect();
  session.post('Profiler.enable');
  session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  process.on('SIGUSR2', () =>
    session.post('Profiler.takePreciseCoverage', (_, { result }) => {
      const file = process.env.COVERAGE_FOLDER + '/' + process.pid + '-' + taken++;
      writeFileSync(file + '.part', JSON.stringify(result));
      renameSync(file + '.part', file);
    }),
  );`;

interface Script {
  readonly url: string;
  readonly functions: readonly {
    readonly ranges: readonly { readonly startOffset: number; readonly count: number }[];
  }[];
}

let runlake: RunlakeProcess;
let coverageFolder: string;
let exportFolder: string;
let taken = 0;

beforeAll(async () => {
  coverageFolder = mkdtempSync(join(tmpdir(), 'runlake-coverage-'));
  exportFolder = mkdtempSync(join(tmpdir(), 'runlake-exports-'));
  runlake = await startRunlake({
    environment: {
      NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(counter)}`,
      COVERAGE_FOLDER: coverageFolder,
      RUNLAKE_LOCAL_EXPORT_ROOT: exportFolder,
    },
  });
}, 180_000);
afterAll(async () => {
  await runlake?.remove();
  for (const folder of [coverageFolder, exportFolder]) rmSync(folder, { recursive: true, force: true });
});

it('passes through files that docs/architecture.md names, and details that these files import', async () => {
  const destination = await post('/api/v1/bulk-exports/destinations', {
    display_name: 'disk',
    destination_type: 'local',
    config: { prefix: 'traces' },
  });
  const project = await post('/api/v1/sessions', { name: projectName });
  const exportOnce = () => sendAndExport(destination.id, project.id);
  await exportOnce();
  await takeFunctions();
  await pause(idleMs);
  const whileIdle = await takeFunctions();
  // A task that runs once a minute may fall into one of the two, but not into both.
  const rounds: Set<string>[] = [];
  for (let round = 0; round < 2; round += 1) {
    await exportOnce();
    const called = [...(await takeFunctions())].filter((each) => !whileIdle.has(each));
    rounds.push(new Set(called.map((each) => each.split('#')[0] as string)));
  }
  const [first, second] = rounds as [Set<string>, Set<string>];
  const files = [...first].filter((file) => second.has(file)).sort();

  const details = new Set([...namedFiles].flatMap(listImports));
  const isExplained = (file: string) => namedFiles.has(file) || details.has(file) || mechanisms.test(file);
  expect(files.filter((file) => !isExplained(file))).toEqual([]);
  // These adapters do the same work on Kafka and S3; `topics.ts` and the like have no functions that run.
  const adapters = /^infra\/(event-log\/kafka|objects\/s3)\//;
  expect([...filesOfTracedRun].filter((file) => !files.includes(file) && !adapters.test(file))).toEqual([]);
  expect(files.length).toBeGreaterThan(80);
  expect(files.length).toBeLessThanOrEqual(maxFiles);
}, 120_000);

/** Sends one run and exports the project. Resolves when the manifest is written. */
async function sendAndExport(destinationId: string, projectId: string): Promise<void> {
  const id = randomUUID();
  const started = new Date(Date.now() - 1_000).toISOString();
  await post('/runs/batch', {
    post: [
      {
        id,
        trace_id: id,
        dotted_order: `${started.replace(/[-:.]/g, '').replace('Z', '000Z')}${id}`,
        name: 'ask model',
        run_type: 'llm',
        session_name: projectName,
        start_time: started,
        end_time: new Date().toISOString(),
        inputs: { question: 'Where is my parcel?' },
        outputs: { usage_metadata: { input_tokens: 7, output_tokens: 3, total_tokens: 10 } },
      },
    ],
  });
  const { id: exportId } = await post('/api/v1/bulk-exports', {
    bulk_export_destination_id: destinationId,
    session_id: projectId,
    start_time: new Date(Date.now() - 3_600_000).toISOString(),
    end_time: new Date(Date.now() + 3_600_000).toISOString(),
  });
  const isComplete = () => {
    const files = readdirSync(exportFolder, { recursive: true, encoding: 'utf8' });
    return files.some((file) => file.includes(exportId) && file.endsWith('_manifest.json'));
  };
  await expect.poll(isComplete, { timeout: 30_000, interval: 50 }).toBe(true);
}

const post = (path: string, body: object) => askRunlake<{ readonly id: string }>(runlake, path, { body });

/** Product functions that were called since the last call, as `file#offset`. */
async function takeFunctions(): Promise<ReadonlySet<string>> {
  const file = join(coverageFolder, `${runlake.pid}-${taken}`);
  taken += 1;
  process.kill(runlake.pid, 'SIGUSR2');
  await expect.poll(() => existsSync(file), { timeout: 20_000, interval: 20 }).toBe(true);
  const scripts = JSON.parse(readFileSync(file, 'utf8')) as readonly Script[];
  return new Set(
    scripts
      .filter(({ url }) => url.startsWith(built) && !url.includes('/node_modules/'))
      .flatMap(({ url, functions }) =>
        functions
          .flatMap(({ ranges }) => ranges.slice(0, 1))
          .filter(({ count }) => count > 0)
          .map(({ startOffset }) => `${url.slice(built.length).replace(/\.js$/, '.ts')}#${startOffset}`),
      ),
  );
}

/** Product files that a file imports. */
function listImports(file: string): string[] {
  const path = fileURLToPath(new URL(`../../${file}`, import.meta.url));
  if (!/\.ts$/.test(file)) return [];
  const imported = readFileSync(path, 'utf8').matchAll(/^import (?!type)[^;]*?from '(\.[^']+)'/gm);
  return [...imported].map(([, target]) => join(file, '..', target as string));
}
