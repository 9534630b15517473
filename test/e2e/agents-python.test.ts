import { execFile } from 'node:child_process';
import { cpSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { findFreePorts } from '../../infra/embedded/free-port.ts';
import { runCommand } from '../api/command-line/run-command.ts';
import { linkPackages } from '../api/control-plane/deployment-client.ts';
import { until } from '../infra/until.ts';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';
import { testSettings } from '../test-settings.ts';
import { pythonEnvironment } from './python/environment.ts';

const script = fileURLToPath(new URL('python/run_agents.py', import.meta.url));
const environment = pythonEnvironment();

let runlake: RunlakeProcess;
let url: string;

/** Deploys the project of the agent server through the control plane. @returns the address of the deployment. */
async function deployProject(): Promise<string> {
  const folder = join(runlake.dataDir, 'basic');
  cpSync(fileURLToPath(new URL('../agents/projects/basic', import.meta.url)), folder, { recursive: true });
  // In the repository, that of the root applies.
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  const args = ['deploy', folder, '--name', 'basic', '--install-command', linkPackages];
  const access = { LANGSMITH_ENDPOINT: runlake.url, LANGSMITH_API_KEY: runlake.apiKey };
  const { code, text } = await runCommand(args, access);
  if (code !== 0) throw new Error(text);
  return `${runlake.url}/deployments/basic`;
}

beforeAll(async () => {
  if ('missing' in environment) return;
  const [port] = await findFreePorts(1);
  url = `http://127.0.0.1:${port}`;
  runlake = await startRunlake({
    environment: {
      RUNLAKE_AGENTS_FILE: fileURLToPath(new URL('../agents/projects/basic/langgraph.json', import.meta.url)),
      RUNLAKE_AGENTS_PORT: String(port),
      RUNLAKE_AGENTS_WORKERS: '1',
      ...testSettings({ agentsTypesSeconds: 60 }),
    },
  });
  const isUp = async () => (await fetch(`${url}/ok`).catch(() => undefined))?.ok === true;
  await until('the agent server responds', isUp, 60_000);
});
afterAll(async () => {
  await runlake?.remove();
});

test.skipIf('missing' in environment).for([
  ['an agent server', async () => url],
  ['a deployment', deployProject],
] as const)('the stock Python SDK runs graphs of %s, unmodified', { timeout: 180_000 }, async ([, findAddress]) => {
  if ('missing' in environment) return;
  const address = await findAddress();
  const { stdout } = await promisify(execFile)(environment.python, [script], {
    env: { PATH: process.env.PATH, LANGGRAPH_URL: address, LANGGRAPH_API_KEY: runlake.apiKey },
    timeout: 120_000,
  });
  expect(JSON.parse(stdout)).toEqual({
    threads: {
      same: true,
      twice: expect.stringMatching(/^ConflictError/),
      counted: 2,
      found: 2,
      pruned: 1,
      gone: expect.stringMatching(/^NotFoundError/),
    },
    events: ['metadata', 'values', 'updates', 'values', 'updates', 'values'],
    asked: expect.arrayContaining([{ question: 'Go?' }]),
    next: ['ask'],
    thread: 'interrupted',
    answered: 'answered: yes',
    history: [null, 'finish', 'ask', 'prepare', '__start__'],
    older: 3,
    changed: 'changed',
    selected: Array(2).fill({ values: { result: 'changed' }, next: [] }),
    forked: ['ask'],
    modes: {
      subgraphs: ['custom|child', 'metadata', 'updates', 'updates|child'],
      messages: ['messages', 'metadata'],
      debug: ['checkpoints', 'debug', 'metadata', 'tasks'],
      events: ['events', 'metadata'],
    },
    stateless: 'echo: hi',
    batch: 2,
    failed: expect.stringContaining('the node failed on purpose'),
    unknown: expect.stringContaining('404'),
    assistants: {
      versions: [2, 1],
      found: ['renamed'],
      counted: 1,
      joke: 'a dry joke about rain',
      schema: ['topic'],
      typed: ['answer', 'question', 'result'],
      drawn: ['__end__', '__start__', 'write'],
      subgraphs: ['child'],
      gone: expect.stringMatching(/^NotFoundError/),
    },
    crons: [1, '0 0 2 1 *', false, []],
    schedule: expect.stringContaining("'soon' is not a valid schedule"),
    items: [{ food: 'soup' }, 1, [['python', 'ann']], null],
    protocol: [true, [{ question: 'Go?' }], 'answered: yes'],
    ended: [false, 1],
    paused: [{ question: 'Go?', answer: 'first' }, false, { question: 'Go?', answer: 'first' }],
    remote: [true, 'answered: yes', ['ask']],
    seen: Array.from({ length: 20 }, (_, i) => i),
    joined: 20,
    cancelled: ['interrupted', 'interrupted'],
    listed: 2,
  });
});
