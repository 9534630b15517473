import { execFileSync, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { folderForSuite } from '../folders.ts';
import { isFullExtent } from '../house/extent.ts';
import { skipWithout } from '../house/prerequisites.ts';
import { startRunlake } from '../runlake-process.ts';
import { startBrowser } from '../web/start-browser.ts';
import { nodeProgram, otherReleases } from './node-releases.ts';

const script = fileURLToPath(new URL('../../docs/demo/demo.ts', import.meta.url));
const loader = import.meta.resolve('tsx');

const folder = folderForSuite();

/** Starts the demo in an empty folder, with SDK and Runlake settings in its environment that must have no effect. */
function startDemo(traces: number, node = process.execPath, environment: Readonly<Record<string, string>> = {}) {
  const child = spawn(node, ['--import', loader, script, '--traces', String(traces)], {
    cwd: folder,
    env: {
      ...process.env,
      TMPDIR: folder,
      LANGSMITH_TRACING_SAMPLING_RATE: '0',
      LANGSMITH_WORKSPACE_ID: '11111111-1111-4111-8111-111111111111',
      RUNLAKE_MAX_BODY_BYTES: 'nonsense',
      ...environment,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const said = { output: '' };
  const seen = (text: string) =>
    new Promise<void>((resolve, reject) => {
      const look = () => said.output.includes(text) && resolve();
      child.stdout.on('data', look);
      child.once('exit', () => reject(new Error(`no '${text}' in:\n${said.output}`)));
      look();
    });
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (said.output += chunk));
  const ended = new Promise<number | null>((resolve) => child.once('close', (code) => resolve(code)));
  return { child, said, seen, ended };
}

const formatNumber = (count: number) => count.toLocaleString('en-US');

function leftovers(): string[] {
  return readdirSync(folder).filter((name) => name.startsWith('runlake-'));
}

describe('the demo', () => {
  it('sends, counts, compares, and says how to go on', async () => {
    // `make test-all` sends as many traces as `make demo`.
    const traces = isFullExtent ? 1_000 : 120;
    const { ended, said } = startDemo(traces);
    expect(await ended, said.output).toBe(0);
    expect(said.output).toContain(`${formatNumber(traces)} of ${formatNumber(traces)} traces`);
    expect(said.output).toMatch(/└─ reply agent \(chain\) +\d+\.\d\d s/);
    expect(said.output).toMatch(new RegExp(` {2}total( +[\\d,]+){4} +${formatNumber(traces)}\\n`));
    for (const what of ['workspace and day', 'project and day', 'user and day', 'api key and day', 'project and hour'])
      expect(said.output).toMatch(new RegExp(`✓ by ${what}: all [\\d,]+ figures equal`));
    expect(said.output).toMatch(/^ {2}project +runs +traces +failed +tokens +cost +seconds$/m);
    expect(said.output).toMatch(/✓ in the Parquet files, value by value: all [\d,]+ rows equal/);
    expect(said.output).toContain('✓ resumed where it stood; 2 runs of the graph in the usage, project trip');
    expect(said.output).not.toMatch(/✗ (by|in)|warn/i);
    expect(said.output).toMatch(/In the dashboard, until the demo ends .*: http:\S+\/runs\/[0-9a-f-]{36}$/m);
    const csv = readFileSync(join(folder, 'demo-usage.csv'), 'utf8');
    expect(csv).toMatch(/^Time Bucket Start,.*,Traces\r\n/);
    expect(leftovers()).toEqual([]);

    await pasteNextSteps(said.output);
  }, 300_000);

  it('keeps running with DEMO_KEEP=1, and its link opens the trace in the browser', async () => {
    const { child, ended, said, seen } = startDemo(60, process.execPath, { DEMO_KEEP: '1' });
    await seen('#once=');
    const browser = await startBrowser();
    try {
      const page = await browser.newPage();
      await page.goto(/^ +(http\S+#once=\S+)$/m.exec(said.output)?.[1] ?? '');
      await page.getByRole('treeitem').filter({ hasText: 'answer ticket' }).waitFor();
      await page.getByRole('treeitem').filter({ hasText: 'write reply' }).waitFor();
    } finally {
      await browser.close();
      child.kill('SIGINT');
    }
    expect(await ended, said.output).toBe(130);
    expect(leftovers()).toEqual([]);
  }, 300_000);

  it('cleans up when it is interrupted', async () => {
    const { child, ended, said, seen } = startDemo(20_000);
    await seen('Sending');
    child.kill('SIGINT');
    expect(await ended, said.output).toBe(130);
    expect(leftovers()).toEqual([]);
    expect(said.output.split('Stopping, cleaning up ...')[1]?.trim()).toBe('');
  }, 300_000);

  it('refuses a number of traces that makes no sense', async () => {
    const { ended, said } = startDemo(3);
    expect(await ended).toBe(2);
    expect(said.output).toContain('--traces takes');
    expect(leftovers()).toEqual([]);
  });

  // `make test` tests only the newest release.
  it.each(isFullExtent ? otherReleases : otherReleases.slice(-1))(
    'runs on Node $version: traces, usage, export and a graph',
    async (release) => {
      const node = await nodeProgram(release);
      if (node === undefined) {
        skipWithout(`no package of Node ${release.version} is pinned for this platform`);
        return;
      }
      expect(execFileSync(node, ['--version'], { encoding: 'utf8' }).trim()).toBe(`v${release.version}`);
      const { ended, said } = startDemo(60, node);
      expect(await ended, said.output).toBe(0);
      expect(said.output).toContain('60 of 60 traces');
      expect(said.output).toContain('✓ resumed where it stood');
      expect(said.output).not.toMatch(/✗ (by|in)|warn/i);
      expect(leftovers()).toEqual([]);
    },
    300_000,
  );
});

/** Starts Runlake with the key that the demo proposes, and sends its curl lines to it. */
async function pasteNextSteps(output: string): Promise<void> {
  const [, apiKey] = /^ +RUNLAKE_BOOTSTRAP_API_KEY=(\S+) make start$/m.exec(output) ?? [];
  const [, proposed] = /LANGSMITH_ENDPOINT=(\S+)/.exec(output) ?? [];
  expect(proposed).toBe('http://127.0.0.1:1984');
  const [send, read] = output.match(/^ +curl .*$/gm) ?? [];
  const runlake = await startRunlake({ apiKey: String(apiKey) });
  try {
    const ask = (line: string | undefined) => curl(String(line).replace(String(proposed), runlake.url));
    expect((await ask(send)).status).toBe(202);
    await expect
      .poll(async () => ((await (await ask(read)).json()) as { value: number }[])[0]?.value, { timeout: 20_000 })
      .toBe(1);
  } finally {
    await runlake.remove();
  }
}

/** Does what curl would do: a shell splits the line, so that quotes have the same effect as for the user. */
function curl(line: string): Promise<Response> {
  const words = execFileSync('sh', ['-c', `curl() { printf '%s\\n' "$@"; }; ${line}`], { encoding: 'utf8' })
    .trimEnd()
    .split('\n');
  const headers: [string, string][] = [];
  let url = '';
  let body: string | undefined;
  for (let index = 0; index < words.length; index++) {
    const word = words[index] as string;
    if (word === '-H') headers.push((words[++index] as string).split(/: (.*)/s).slice(0, 2) as [string, string]);
    else if (word === '-d') body = words[++index];
    else url = word;
  }
  return fetch(url, { headers, ...(body !== undefined && { method: 'POST', body }) });
}
