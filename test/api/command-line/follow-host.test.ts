import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeAll, expect, it } from 'vitest';
import { retireMessage } from '../../../api/command-line/follow-host.ts';
import { builtProgram } from '../../built-program.ts';
import { folderForSuite } from '../../folders.ts';
import { until } from '../../infra/until.ts';

/** Stands in for an agent server. Like it, it ends when nothing keeps it running any more. */
const program = `
import { retireForHost, stopWithHost } from ${JSON.stringify(new URL('../../../dist/api/command-line/follow-host.js', import.meta.url))};
const running = setInterval(() => undefined, 1_000);
const end = (how) => {
  process.exitCode = how === 'retired' ? 11 : 10;
  clearInterval(running);
};
let how = 'stopped';
process.once('SIGTERM', () => end(how));
process.send('started');
if (process.argv[2] === 'late') await new Promise((resolve) => process.once('disconnect', resolve));
stopWithHost();
retireForHost(async () => {
  how = 'retired';
});
if (process.argv[2] !== 'late') process.send('ready');
`;
const running: ChildProcess[] = [];
const folder = folderForSuite();

beforeAll(async () => {
  writeFileSync(join(folder, 'program.mjs'), program);
});
afterEach(() => {
  for (const child of running.splice(0)) child.kill('SIGKILL');
});

function start(path: string, args: readonly string[], env?: NodeJS.ProcessEnv): ChildProcess {
  const child = fork(path, args, { env, execArgv: [], stdio: ['ignore', 'ignore', 'pipe', 'ipc'] });
  running.push(child);
  return child;
}

it.each([
  ['its host ends', '', (child: ChildProcess) => child.disconnect(), 10],
  ['its host ended before it could follow it', 'late', (child: ChildProcess) => child.disconnect(), 10],
  ['its host stops it', '', (child: ChildProcess) => child.kill('SIGTERM'), 10],
  ['its host lets it retire', '', (child: ChildProcess) => child.send(retireMessage), 11],
])('a replica ends when %s', async (_what, argument, act, code) => {
  const child = start(join(folder, 'program.mjs'), [argument]);
  const exited = once(child, 'exit');
  await once(child, 'message');
  if (argument !== 'late') await once(child, 'message');
  act(child);
  expect(await exited).toEqual([code, null]);
});

it('a replica that waits for servers ends with its host', async () => {
  const child = start(builtProgram, ['agents'], {
    PATH: process.env.PATH,
    RUNLAKE_CLICKHOUSE_URL: 'http://127.0.0.1:1/x',
    RUNLAKE_DATABASE_URL: 'postgres://127.0.0.1:1/x',
    RUNLAKE_KAFKA_BROKERS: '127.0.0.1:1',
    RUNLAKE_SCHEMA_REGISTRY_URL: 'http://127.0.0.1:1',
    RUNLAKE_SECRET_KEY: 'a secret key of the tests',
    RUNLAKE_AGENTS_FILE: join(folder, 'langgraph.json'),
    RUNLAKE_AGENTS_PORT: '0',
    RUNLAKE_METRICS_PORT: '0',
    RUNLAKE_AGENTS_REVISION: JSON.stringify({ id: '3f0f4a8e-0f64-4d3c-9a55-7f1d3f1f0001', environment: {} }),
  });
  let output = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  const exited = once(child, 'exit');
  await until('the replica to wait', () => output.includes('waiting'));
  child.disconnect();
  expect(await exited).toEqual([128 + 15, null]);
});
