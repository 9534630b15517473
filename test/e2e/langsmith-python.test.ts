import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';
import { pythonEnvironment } from './python/environment.ts';

const environment = pythonEnvironment();

let runlake: RunlakeProcess;
beforeAll(async () => {
  if ('python' in environment) runlake = await startRunlake();
});
afterAll(async () => {
  await runlake?.remove();
});

async function run(script: string) {
  if ('missing' in environment) throw new Error(environment.missing);
  const path = fileURLToPath(new URL(`python/${script}`, import.meta.url));
  return await promisify(execFile)(environment.python, [path], {
    env: { PATH: process.env.PATH, LANGSMITH_ENDPOINT: runlake.url, LANGSMITH_API_KEY: runlake.apiKey },
    timeout: 60_000,
  });
}

test.skipIf('missing' in environment)('the stock Python SDK sends, reads and rates traces, unmodified', async () => {
  const { stdout, stderr } = await run('send_and_read.py');
  const found = JSON.parse(stdout);

  expect(found).toMatchObject({
    names: ['agent', 'model', 'plain', 'priced', 'tool'],
    status: { agent: 'success', model: 'success', plain: 'success', priced: 'success', tool: 'error' },
    // Dollars per million tokens: 400 tokens at 0.15 and 600 at 0.075; 10 at 0.60.
    priced: ['0.000105', '0.000006', '0.000111'],
    tokens: 18,
    agent: [true, true, true],
    cost: '0.00042',
    error: "ValueError('no')",
    big: '12345678901234567890',
    outputs: { answer: 'ho' },
    children: ['model', 'tool'],
    plain: { y: 2 },
    roots: ['agent', 'plain', 'priced'],
    errors: ['tool'],
    feedback: expect.arrayContaining([
      ['score', 0.5, 'fine'],
      ['thumbs', 1, 'good'],
    ]),
    queue: ['plain'],
    shared: [true, false, false],
    thread: { asc: ['turn 0', 'turn 1'], desc: ['turn 1', 'turn 0'], filtered: ['turn 1'] },
  });
  expect(found.projects).toEqual([found.read_project]);
  expect(stderr).not.toMatch(/failed|traceback|retry/i);
});

test.skipIf('missing' in environment)(
  'the stock Python SDK pushes and pulls prompts, and is asynchronous',
  async () => {
    const { stdout } = await run('push_and_pull.py');
    const pushed = [{ 'a.md': 'new' }, ['d'], true, false];
    expect(JSON.parse(stdout)).toEqual({
      first: true,
      by_hash: true,
      latest: ['{question}'],
      commits: 2,
      described: ['asks', ['a']],
      hub: { agent: pushed, skill: pushed },
      asynchronous: {
        run: { y: 2 },
        runs: ['asynchronous'],
        feedback: 1,
        examples: [{ n: 1 }],
        shared: true,
        queue: ['asynchronous'],
        prompt: true,
      },
    });
  },
);
