import { chmodSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { openLocalStore } from '../../../infra/objects/open-local-store.ts';
import { folderForTest } from '../../folders.ts';

/**
 * Tests what the contract of stores does not cover: keys that lead out of the folder, and leftovers of killed
 * processes.
 */
let parent: string;
let root: string;
beforeEach(() => {
  parent = folderForTest();
  root = join(parent, 'root');
  mkdirSync(join(root, 'team'), { recursive: true });
  mkdirSync(join(parent, 'outside'));
  writeFileSync(join(parent, 'outside/secret'), 'secret');
});

const body = Buffer.from('x');
const outside = () => readdirSync(join(parent, 'outside'));
const refused = { code: 'DESTINATION_BUCKET_NOT_VALID', class: 'caller' };

describe('a local store', () => {
  it.each(['../outside/file', 'a/../../outside/file', '..', '.', 'a/./b', 'a//b', 'a\0b'])(
    'refuses the key %j',
    async (key) => {
      const store = openLocalStore({ root, prefix: 'team' });
      for (const call of [
        () => store.put(key, body),
        () => store.get(key, { maxBytes: 9 }),
        () => store.delete(key),
        () => store.upload(key, join(parent, 'outside/secret')),
      ]) {
        await expect(call()).rejects.toMatchObject(refused);
      }
      expect(outside()).toEqual(['secret']);
      expect(readdirSync(root, { recursive: true })).toEqual(['team']);
    },
  );

  it('does not follow a link out of its root at any level', async () => {
    symlinkSync(join(parent, 'outside'), join(root, 'link'));
    symlinkSync(join(parent, 'outside/secret'), join(root, 'team/file'));
    symlinkSync(join(parent, 'outside/never'), join(root, 'dangling'));
    for (const prefix of ['link', 'link/deeper']) {
      const store = openLocalStore({ root, prefix });
      await expect(store.put('new', body)).rejects.toMatchObject(refused);
      await expect(store.get('secret', { maxBytes: 9 })).rejects.toMatchObject(refused);
      await expect(store.delete('secret')).rejects.toMatchObject(refused);
    }
    await expect(openLocalStore({ root, prefix: 'dangling' }).put('new', body)).rejects.toMatchObject({
      class: 'caller',
    });
    const store = openLocalStore({ root, prefix: 'team' });
    await expect(store.get('file', { maxBytes: 9 })).rejects.toMatchObject(refused);
    // The link itself is replaced, not its target.
    await store.put('file', body);
    expect((await store.get('file', { maxBytes: 9 })).toString()).toBe('x');
    expect(outside()).toEqual(['secret']);
    expect(readFileSync(join(parent, 'outside/secret'), 'utf8')).toBe('secret');
  });

  it('follows links within its root, and a root that is a link', async () => {
    symlinkSync(join(root, 'team'), join(root, 'alias'));
    symlinkSync(root, join(parent, 'root-link'));
    await openLocalStore({ root: join(parent, 'root-link'), prefix: 'alias' }).put('a/b', body);
    expect(readFileSync(join(root, 'team/a/b'), 'utf8')).toBe('x');
  });

  it('reports what is wrong with its location', async () => {
    const without = openLocalStore({ root: join(parent, 'none'), prefix: '' });
    for (const call of [() => without.ping(), () => without.put('a', body)]) {
      await expect(call()).rejects.toMatchObject({ ...refused, message: expect.stringContaining('does not exist') });
    }
    const file = openLocalStore({ root: join(parent, 'outside/secret'), prefix: '' });
    await expect(file.ping()).rejects.toMatchObject(refused);
    const store = openLocalStore({ root, prefix: '' });
    await store.put('a', body);
    await expect(store.put('a/b', body)).rejects.toMatchObject(refused);
    await expect(store.put('team', body)).rejects.toMatchObject(refused);
    await expect(store.put('x'.repeat(300), body)).rejects.toMatchObject({
      ...refused,
      message: expect.stringContaining('too long'),
    });
  });

  it.runIf(process.getuid?.() !== 0)('reports that it has no write permission', async () => {
    chmodSync(join(root, 'team'), 0o500);
    onTestFinished(() => chmodSync(join(root, 'team'), 0o700));
    await expect(openLocalStore({ root, prefix: 'team' }).put('a', body)).rejects.toMatchObject({
      code: 'DESTINATION_ACCESS_DENIED',
    });
  });

  it('removes files of an upload whose process was killed, by its recorded id', async () => {
    const store = openLocalStore({ root, prefix: 'team' });
    let draft = '';
    const upload = store.upload('a/part.parquet', join(parent, 'outside/secret'), {
      recordUpload: async (id) => {
        draft = id;
        throw new Error('killed');
      },
    });
    await expect(upload).rejects.toBeDefined();
    // The same state as if the process had been killed slightly later.
    writeFileSync(join(root, 'team/a', draft), 'half');
    expect(draft).not.toMatch(/parquet/);
    await store.abortUploads('a/part.parquet', [draft, '../../outside/secret', 'part.parquet', '']);
    expect(readdirSync(join(root, 'team/a'))).toEqual([]);
    expect(outside()).toEqual(['secret']);
  });
});
