import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isFullExtent } from './extent.ts';
import { closingLines, failedFiles, nameOf, type TestReport, withSecondAttempt } from './test-report.ts';

/**
 * Every suite, and once more, by itself, each of the few that failed: they end processes, starve stores and count
 * seconds beside one another on whatever machine there is. A suite that fails by itself too fails the run. One that
 * passes then is named `unsteady` in the closing lines: a fault of the test or of the product that somebody has to
 * trace, but no reason to hold back what has nothing to do with it; in `make test-all` it fails the run. Arguments go to
 * the runner; with any there is no second attempt.
 */
const fewFiles = 5;

const folder = mkdtempSync(join(tmpdir(), 'runlake-suites-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

let child: ChildProcess | undefined;
let interrupted = false;
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    interrupted = true;
    child?.kill(signal);
  });
}

async function run(
  name: string,
  args: readonly string[],
  environment: NodeJS.ProcessEnv = {},
): Promise<{ code: number; report?: TestReport }> {
  const path = join(folder, name);
  child = spawn(process.execPath, [join('node_modules', 'vitest', 'vitest.mjs'), 'run', ...args], {
    stdio: 'inherit',
    env: { ...process.env, RUNLAKE_TEST_REPORT: path, ...environment },
  });
  const [code] = await once(child, 'exit');
  return {
    code: code ?? 1,
    ...(existsSync(path) && { report: JSON.parse(readFileSync(path, 'utf8')) as TestReport }),
  };
}

const args = process.argv.slice(2);
const built = { RUNLAKE_TEST_BUILT: 'true' };
const first = await run('first', args, args.length > 0 ? {} : { ...built, RUNLAKE_TEST_SHARING: 'true' });
if (!first.report || first.code === 0 || args.length > 0 || interrupted) process.exit(first.code);
const failed = failedFiles(first.report);
if (failed.length === 0 || failed.length > fewFiles || first.report.outside.length > 0) process.exit(first.code);

console.log(`\nOnce more, by themselves: ${failed.map(nameOf).join(', ')}`);
const projects = [...new Set(failed.map(({ project }) => project))].flatMap((name) => ['--project', name]);
const files = [...new Set(failed.map(({ file }) => file))];
const second = await run('second', [...projects, '--no-file-parallelism', ...files], built);
if (!second.report) process.exit(second.code || 1);

const both = withSecondAttempt(first.report, second.report);
const remaining = new Set(failedFiles(both).map(nameOf));
const unsteady = failed.filter((file) => !remaining.has(nameOf(file))).flatMap(({ failures }) => failures);
for (const line of closingLines(both, unsteady)) console.log(line);
// A file that passed at first may have failed now, and one that failed may not have run.
const failedAgain = remaining.size > 0 || (isFullExtent && unsteady.length > 0);
process.exit(failedAgain ? 1 : second.code);
