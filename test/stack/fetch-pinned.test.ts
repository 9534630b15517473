import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { folderForTest } from '../folders.ts';
import { fetchPinned, type PinnedDownload } from './fetch-pinned.ts';

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
const pin = { version: '1.0', files: { 'a.jar': sha256('a'), 'b.jar': sha256('b') } };

/** Returns options of a download that provides these files and counts its calls. */
function createDownload(files: Record<string, string>, options: Partial<PinnedDownload> = {}) {
  let downloads = 0;
  const cacheFolder = options.cacheFolder ?? join(folderForTest(), 'cache');
  const download = async (folder: string) => {
    downloads += 1;
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, 'files', name), text);
  };
  const fetch = () => fetchPinned({ part: 'part', pin, cacheFolder, download, ...options });
  return { cacheFolder, fetch, downloads: () => downloads };
}

const whole = { 'a.jar': 'a', 'b.jar': 'b' };

describe('fetchPinned', () => {
  it('downloads once, verifies, unpacks, and publishes the folder atomically', async () => {
    const source = createDownload(whole, { unpack: async (folder) => writeFileSync(join(folder, 'unpacked'), 'yes') });
    const folder = await source.fetch();
    expect(readdirSync(folder).sort()).toEqual(['files', 'unpacked']);
    expect(readFileSync(join(folder, 'files', 'b.jar'), 'utf8')).toBe('b');
    expect(await source.fetch()).toBe(folder);
    expect(source.downloads()).toBe(1);
    expect(readdirSync(source.cacheFolder)).toHaveLength(1);
  });

  it('returns the same folder to concurrent callers', async () => {
    const source = createDownload(whole);
    const folders = await Promise.all([source.fetch(), source.fetch(), source.fetch()]);
    expect(new Set(folders).size).toBe(1);
    expect(readdirSync(source.cacheFolder)).toHaveLength(1);
  });

  it.each([
    [
      'a file with other contents',
      { ...whole, 'b.jar': 'B' },
      /files\/b\.jar is not the pinned file of part.*expected [0-9a-f]{64}/,
    ],
    ['a missing file', { 'a.jar': 'a' }, /b\.jar is missing/],
    ['a file without a pin', { ...whole, 'c.jar': 'c' }, /files\/c\.jar is not the pinned file.*expected none/],
  ])('%s: fails with the path of the file and leaves nothing behind', async (_what, files, reason) => {
    const source = createDownload(files);
    await expect(source.fetch()).rejects.toThrow(reason);
    expect(readdirSync(source.cacheFolder)).toEqual([]);
  });

  it('fails with the path of a file that was changed in the cache', async () => {
    const source = createDownload(whole);
    const file = join(await source.fetch(), 'files', 'a.jar');
    writeFileSync(file, 'changed');
    await expect(source.fetch()).rejects.toThrow(`${file} is not the pinned file`);
    expect(existsSync(file)).toBe(true);
  });

  it('accepts unpinned and missing files if the source verifies signatures itself', async () => {
    const folder = await createDownload({ 'a.jar': 'a', 'b2.jar': 'b' }, { allowsUnpinned: true }).fetch();
    expect(readdirSync(join(folder, 'files')).sort()).toEqual(['a.jar', 'b2.jar']);
    await expect(createDownload({ 'a.jar': 'A' }, { allowsUnpinned: true }).fetch()).rejects.toThrow(
      /a\.jar is not the pinned file/,
    );
  });

  it('removes the draft of a killed process after a day', async () => {
    const source = createDownload(whole);
    const [old, young] = ['part.1.draft', 'part.2.draft'].map((name) => join(source.cacheFolder, name)) as [
      string,
      string,
    ];
    for (const path of [old, young]) mkdirSync(path, { recursive: true });
    utimesSync(old, new Date(0), new Date(0));
    await source.fetch();
    expect([existsSync(old), existsSync(young)]).toEqual([false, true]);
  });
});
