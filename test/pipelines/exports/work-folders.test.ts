import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chown, mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { openWorkFolders } from '../../../pipelines/exports/worker.ts';
import { folderForTest } from '../../folders.ts';
import { isLinuxRoot } from '../../house/prerequisites.ts';

let root: string;
beforeEach(() => {
  root = folderForTest();
});

test('each attempt has its own folder, which is removed afterwards, whatever the outcome', async () => {
  const folders = await openWorkFolders(join(root, 'not', 'there', 'yet'));
  const seen: string[] = [];
  const use = (work: () => Promise<void>) =>
    folders.withFolder('run', async (folder) => {
      seen.push(folder);
      await writeFile(join(folder, 'part'), 'x');
      await work();
    });
  await Promise.all([use(async () => {}), use(async () => {})]);
  await expect(use(async () => Promise.reject(new Error('r')))).rejects.toThrow('r');
  expect(new Set(seen).size).toBe(3);
  expect(seen.filter((folder) => existsSync(folder))).toEqual([]);
  await folders.close();
  expect(await readdir(join(root, 'not', 'there', 'yet'))).toEqual([]);
});

test('the next process removes the folders of a dead process, and keeps folders in use and unrelated ones', async () => {
  const living = await openWorkFolders(root);
  const { pid } = spawnSync(process.execPath, ['-e', '']);
  const dead = join(root, `${pid}-0123456789ab`);
  await mkdir(dead);
  await writeFile(join(dead, 'owner.json'), JSON.stringify({ pid, identity: 'of another time' }));
  await writeFile(join(dead, 'part.parquet'), 'half');
  const beingMade = join(root, '1-ba9876543210');
  await mkdir(beingMade);
  await mkdir(join(root, 'of another program'));
  const next = await openWorkFolders(root);
  expect(existsSync(dead)).toBe(false);
  expect(existsSync(beingMade)).toBe(true);
  expect(await readdir(root)).toHaveLength(4);
  await Promise.all([living.close(), next.close()]);
});

test.runIf(isLinuxRoot('a folder of another user'))(
  'does not open folders of other users, whose contents could block',
  async () => {
    const strange = join(root, '999999-0123456789ab');
    await mkdir(strange);
    execFileSync('mkfifo', [join(strange, 'owner.json')]);
    await chown(strange, 12_345, 12_345);
    const folders = await openWorkFolders(root);
    expect(existsSync(strange)).toBe(true);
    await folders.close();
  },
);

test('reports a folder that cannot be used', async () => {
  await writeFile(join(root, 'file'), '');
  await expect(openWorkFolders(join(root, 'file', 'below'))).rejects.toMatchObject({ code: 'WORK_FILE_UNUSABLE' });
});
