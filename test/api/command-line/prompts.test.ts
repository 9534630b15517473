import { spawn } from 'node:child_process';
import { beforeAll, describe, expect, it } from 'vitest';
import { askRunlake } from '../../ask-runlake.ts';
import { builtCommand, builtProgram } from '../../built-program.ts';
import { forSuite } from '../../for-suite.ts';
import { startRunlake } from '../../runlake-process.ts';

/** Commands that ask on a terminal, which `script` of util-linux provides. */
const runlake = forSuite(() => startRunlake());
let environment: Record<string, string>;
let organizationId: string;

const run = (...words: string[]) => builtCommand(words, environment);

beforeAll(async () => {
  environment = { RUNLAKE_DATA_DIR: runlake.dataDir, RUNLAKE_LOG_LEVEL: 'warn' };
  const { errors } = await run('organizations', 'create', 'Acme');
  organizationId = /Organisation (\S+)/.exec(errors)?.[1] ?? '';
  await askRunlake(runlake, '/v2/deployments', {
    body: { name: 'kept', source: 'internal_source', source_config: {}, source_revision_config: {}, secrets: [] },
  });
}, 120_000);

/** Runs a command on a terminal, and types `keys` when its output contains `question`. */
function onTerminal(words: readonly string[], question: string, keys: string) {
  const command = [process.execPath, builtProgram, ...words].map((word) => `'${word}'`).join(' ');
  const child = spawn('script', ['-qefc', command, '/dev/null'], {
    env: { PATH: process.env.PATH, ...environment },
    stdio: ['pipe', 'pipe', 'inherit'],
    timeout: 60_000,
  });
  let text = '';
  let hasTyped = false;
  child.stdout.on('data', (chunk) => {
    text += chunk;
    if (hasTyped || !text.includes(question)) return;
    hasTyped = true;
    child.stdin.write(keys);
  });
  return new Promise<{ code: number | null; text: string }>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, text }));
  });
}

const ctrlC = '\u0003';
const ctrlD = '\u0004';
const prompts: readonly [command: string, words: () => string[]][] = [
  ['organizations delete', () => ['organizations', 'delete', organizationId]],
  ['deployments delete', () => ['deployments', 'delete', 'kept']],
];
const question = 'Type its name';

describe.each(prompts)('the prompt of %s', (_command, words) => {
  it('ends at Ctrl-C with exit code 130, and nothing is changed', async () => {
    const { code, text } = await onTerminal(words(), question, `par${ctrlC}`);
    expect(code, text).toBe(130);
    expect(text).not.toMatch(/error|warning|runlake:/i);
    await expectNothingChanged();
  }, 60_000);

  it('ends at Ctrl-D with exit code 1 and a message, and nothing is changed', async () => {
    const { code, text } = await onTerminal(words(), question, ctrlD);
    expect(code, text).toBe(1);
    expect(text).toMatch(/runlake: Nothing (is|was) deleted/);
    await expectNothingChanged();
  }, 60_000);

  it('refuses another name', async () => {
    const { code, text } = await onTerminal(words(), question, 'other\r');
    expect(code, text).toBe(1);
    await expectNothingChanged();
  }, 60_000);
});

it('credentials that are typed end at Ctrl-C with exit code 130', async () => {
  const words = ['export', 'destinations', 'create', '--name', 'a', '--bucket', 'a', '--credentials-stdin'];
  const { code, text } = await onTerminal(words, 'then Enter and Ctrl-D', `{"access${ctrlC}`);
  expect(code, text).toBe(130);
  expect((await run('export', 'destinations', 'list')).output).not.toMatch(/\ba\b/);
}, 60_000);

it('the prompt accepts the name', async () => {
  const { code, text } = await onTerminal(['deployments', 'delete', 'kept'], question, 'kept\r');
  expect(code, text).toBe(0);
  expect(text).toContain('is being deleted');
}, 60_000);

async function expectNothingChanged(): Promise<void> {
  expect((await run('organizations', 'list')).output).toMatch(new RegExp(`${organizationId} .*active`));
  expect((await run('deployments', 'list')).output).toMatch(/^kept /m);
  expect((await run('keys', 'list')).output).not.toContain('Created by a command');
}
