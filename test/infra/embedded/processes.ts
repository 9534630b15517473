import { type ChildProcess, execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { onTestFinished } from 'vitest';
import { childProcessOptions } from '../../engines/child-of-suite.ts';

export interface HeldFolder {
  readonly child: ChildProcess;
  readonly clickhouseUrl: string;
  readonly databaseUrl: string;
  readonly error?: string;
}

/** Starts `hold-folder.fixture.ts` and waits for its message. */
export async function holdFolder(folder: string, what: 'engines' | 'nothing'): Promise<HeldFolder> {
  const child = fork(fileURLToPath(new URL('./hold-folder.fixture.ts', import.meta.url)), [folder, what], {
    execArgv: [...childProcessOptions],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const [message] = await once(child, 'message');
  return { child, ...message };
}

export async function kill(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  const exit = once(child, 'exit');
  child.kill(signal);
  await exit;
}

/** Returns the processes whose command line or working folder contains `folder`, as `pid command`, without zombies. */
export function listProcesses(folder: string): string[] {
  return execFileSync('ps', ['-eo', 'pid=,stat=,args='], { encoding: 'utf8' })
    .split('\n')
    .filter((line) => line.includes(folder) && !/^\s*\d+\s+Z/.test(line));
}

export async function askClickhouse(url: string, sql: string): Promise<string> {
  // Any server of a cluster reads the rows of all servers.
  const address = new URL(url.split(',')[0] ?? url);
  const answer = await fetch(`${address.origin}/?database=${address.pathname.slice(1)}`, {
    method: 'POST',
    body: sql,
    headers: { 'X-ClickHouse-User': address.username, 'X-ClickHouse-Key': address.password, Connection: 'close' },
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(text);
  return text.trim();
}

export async function askPostgres(url: string, sql: string): Promise<unknown[]> {
  const client = new pg.Client(url);
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query({ text: sql, rowMode: 'array' })).rows.flat();
  } finally {
    await client.end();
  }
}
