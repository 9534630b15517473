import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { createProcessFolder, isSameProcess, readProcessIdentity } from '../../../infra/embedded/process-identity.ts';

it('the identity of a process is constant while it runs', () => {
  const own = readProcessIdentity(process.pid);
  expect(own).toBeDefined();
  expect(readProcessIdentity(process.pid)).toBe(own);
  expect(isSameProcess(process.pid, own ?? '')).toBe(true);
});

it('a different start time means a different process', () => {
  expect(isSameProcess(process.pid, `${readProcessIdentity(process.pid)}1`)).toBe(false);
});

it.each([0, -1, 1.5, Number.NaN, 4_000_000])('returns undefined for process id %s', (pid) => {
  expect(readProcessIdentity(pid)).toBeUndefined();
});

it('a zombie process counts as dead', async () => {
  // The inner shell exits. Its parent becomes `sleep`, which never waits for its children.
  const shell = spawn('sh', ['-c', 'sh -c "exit 0" & echo $!; exec sleep 30'], { stdio: ['ignore', 'pipe', 'ignore'] });
  onTestFinished(() => {
    shell.kill('SIGKILL');
  });
  const [line] = await once(shell.stdout, 'data');
  await expect.poll(() => readProcessIdentity(Number(String(line)))).toBeUndefined();
});

describe('folders of processes', () => {
  let root: string;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'runlake-folders-'));
  });
  afterEach(() => execFileSync('rm', ['-rf', root]));

  /** Creates the folder of a process that is dead. */
  function createOrphan(prefix: string): string {
    const { pid } = spawnSync(process.execPath, ['-e', '']);
    const folder = join(root, `${prefix}${pid}-0123456789ab`);
    mkdirSync(folder);
    writeFileSync(join(folder, 'owner.json'), JSON.stringify({ pid, identity: 'of another time' }));
    return folder;
  }

  it('are deleted also if their paths are too long', async () => {
    const orphan = createOrphan('deep-');
    const nest = `for (let depth = 0; depth < 30; depth += 1) {
      require('node:fs').mkdirSync('d'.repeat(200));
      process.chdir('d'.repeat(200));
    }`;
    execFileSync(process.execPath, ['-e', nest], { cwd: orphan });
    const own = await createProcessFolder(root, { prefix: 'deep-' });
    expect([existsSync(own), existsSync(orphan)]).toEqual([true, false]);
  });

  it('do not prevent a start if they cannot be deleted', async () => {
    const orphan = createOrphan('kept-');
    const warnings: unknown[] = [];
    const logger = { warn: (fields: object) => warnings.push(fields) };
    const beforeDelete = () => Promise.reject(new Error('still in use'));
    const own = await createProcessFolder(root, { prefix: 'kept-', beforeDelete, logger });
    expect([existsSync(own), existsSync(orphan)]).toEqual([true, true]);
    expect(warnings).toMatchObject([{ folder: orphan }]);
  });
});
