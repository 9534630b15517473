import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { ObjectStore } from '../../../infra/objects/object-store.ts';

export interface StoreUnderTest {
  /** Opens a store that reads and writes below `prefix`. Two stores with the same prefix have the same objects. */
  open(prefix: string): ObjectStore;
  /** Returns the names of everything below the prefixes of the test, relative to the store's own root, in any form. */
  names(): Promise<string[]>;
  close(): Promise<void>;
}

const MIB = 1024 ** 2;
const sha256 = (body: Uint8Array) => createHash('sha256').update(body).digest('hex');

/** Defines the contract tests for every implementation of the object store. */
export function objectStoreContract(name: string, openStores: () => Promise<StoreUnderTest>): void {
  describe(`object store: ${name}`, () => {
    let stores: StoreUnderTest;
    let store: ObjectStore;
    let folder: string;
    const prefix = `contract/${randomUUID()}`;

    const file = (body: Uint8Array) => {
      const path = join(folder, randomUUID());
      writeFileSync(path, body);
      return path;
    };
    const read = (key: string, maxBytes = 64 * MIB) => store.get(key, { maxBytes });
    // The bucket also has the objects of earlier runs.
    const namesOf = async (key: string) => (await stores.names()).filter((found) => found.includes(`${prefix}/${key}`));

    beforeAll(async () => {
      stores = await openStores();
      store = stores.open(prefix);
      folder = mkdtempSync(join(tmpdir(), 'runlake-objects-'));
    });
    afterAll(async () => {
      await store?.close();
      await stores?.close();
      if (folder) rmSync(folder, { recursive: true, force: true });
    });

    it('is reachable', async () => {
      await store.ping();
    });

    it('returns the stored object, and after a second put the new one', async () => {
      await store.put('a/b/object.json', Buffer.from('{"first":true}'), { contentType: 'application/json' });
      expect((await read('a/b/object.json')).toString()).toBe('{"first":true}');
      await store.put('a/b/object.json', Buffer.from('2'));
      expect((await read('a/b/object.json')).toString()).toBe('2');
      await store.put('empty', new Uint8Array());
      expect((await read('empty')).length).toBe(0);
      expect(store.resolvePath('a/b/object.json')).toMatch(new RegExp(`${prefix}/a/b/object\\.json$`));
    });

    it('reads at most the requested number of bytes', async () => {
      const body = randomBytes(3 * MIB);
      await store.put('large', body);
      expect(await read('large', 10)).toEqual(body.subarray(0, 10));
      expect(sha256(await read('large', 3 * MIB))).toBe(sha256(body));
    });

    it('reports size and ETag of a key, the same as the upload did', async () => {
      expect(await store.stat('never')).toBeUndefined();
      expect(await store.stat('no/folder/either')).toBeUndefined();
      const { bytes, etag } = await store.upload('weighed', file(Buffer.from('some words')));
      expect(await store.stat('weighed')).toEqual({ bytes, etag });
      await store.upload('weighed', file(Buffer.from('other word')));
      const after = await store.stat('weighed');
      expect(after?.bytes).toBe(bytes);
      if (etag !== undefined) expect(after?.etag).not.toBe(etag);
    });

    it.each([
      ['small', 0],
      ['uploaded in parts', 17 * MIB],
    ])('checks before it replaces an object (%s), and keeps it if replacement is not allowed', async (size, bytes) => {
      const key = `guarded ${size}`;
      const [first, late, second] = ['first', 'late', 'second'].map((text) =>
        Buffer.concat([Buffer.from(text), Buffer.alloc(bytes)]),
      );
      await store.upload(key, file(first!));
      const confirmReplace = async () => {
        throw runlakeError('EXPORT_ATTEMPT_OVER');
      };
      await expect(store.upload(key, file(late!), { confirmReplace })).rejects.toMatchObject({
        code: 'EXPORT_ATTEMPT_OVER',
      });
      expect(sha256(await read(key))).toBe(sha256(first!));
      await store.upload(key, file(second!), { confirmReplace: async () => undefined });
      expect(sha256(await read(key))).toBe(sha256(second!));
      expect(await namesOf(key)).toHaveLength(1);
    });

    it('reports a missing object, and deletes an existing one', async () => {
      await expect(read('never')).rejects.toMatchObject({ code: 'DESTINATION_OBJECT_MISSING', class: 'caller' });
      await store.put('gone', Buffer.from('x'));
      await store.delete('gone');
      await expect(read('gone')).rejects.toMatchObject({ code: 'DESTINATION_OBJECT_MISSING' });
      await store.delete('gone');
      await store.delete('no/folder/either');
    });

    it.each([
      ['empty', 0],
      ['of one byte', 1],
      ['just below the size of a multipart upload', 16 * MIB - 1],
      ['as a multipart upload', 16 * MIB],
      ['with a last part of one byte', 24 * MIB + 1],
    ])('uploads a file %s', async (what, bytes) => {
      const body = randomBytes(bytes);
      const recordedIds: string[] = [];
      const progress: number[] = [];
      const uploaded = await store.upload(`files/${what}`, file(body), {
        recordUpload: async (id) => {
          // No part has been sent by then.
          expect(progress).toEqual([]);
          recordedIds.push(id);
        },
        onProgress: (sent) => progress.push(sent),
      });
      expect(uploaded).toMatchObject({ bytes, sha256: sha256(body) });
      expect(sha256(await read(`files/${what}`))).toBe(uploaded.sha256);
      expect(progress).toEqual([...progress].sort((one, other) => one - other));
      if (bytes > 0) expect(progress.at(-1)).toBe(bytes);
      expect(recordedIds.length).toBeLessThan(2);
      for (const id of recordedIds) await store.abortUploads(`files/${what}`, [id]);
      // The upload is complete, so there is nothing to abort.
      expect(sha256(await read(`files/${what}`))).toBe(uploaded.sha256);
    });

    it('an upload replaces an existing object', async () => {
      await store.upload('again', file(randomBytes(20 * MIB)));
      const body = randomBytes(17 * MIB);
      await store.upload('again', file(body));
      expect(sha256(await read('again'))).toBe(sha256(body));
    });

    it('an aborted upload leaves the previous object, and nothing else', async () => {
      await store.put('kept/object', Buffer.from('before'));
      const recordedIds: string[] = [];
      const controller = new AbortController();
      const upload = store.upload('kept/object', file(randomBytes(40 * MIB)), {
        signal: controller.signal,
        recordUpload: async (id) => void recordedIds.push(id),
        onProgress: () => controller.abort(new Error('given up')),
      });
      await expect(upload).rejects.toThrow('given up');
      expect((await read('kept/object')).toString()).toBe('before');
      expect((await namesOf('kept/')).length).toBe(1);
      await store.abortUploads('kept/object', recordedIds);
      await store.abortUploads('kept/object', ['no-such-upload', '../../x']);
      expect((await read('kept/object')).toString()).toBe('before');
    });

    it('does not continue an upload whose id could not be recorded', async () => {
      const upload = store.upload('unnoted', file(randomBytes(17 * MIB)), {
        recordUpload: async () => {
          throw new Error('the database is away');
        },
      });
      await expect(upload).rejects.toBeDefined();
      await expect(read('unnoted')).rejects.toMatchObject({ code: 'DESTINATION_OBJECT_MISSING' });
      expect(await namesOf('unnoted')).toEqual([]);
    });

    it('does nothing if the signal is aborted already', async () => {
      const signal = AbortSignal.abort(new Error('over'));
      const calls = [
        () => store.ping({ signal }),
        () => store.put('aborted', Buffer.from('x'), { signal }),
        () => store.get('a/b/object.json', { maxBytes: 1, signal }),
        () => store.delete('a/b/object.json', { signal }),
        () => store.upload('aborted', file(randomBytes(17 * MIB)), { signal }),
        () => store.abortUploads('aborted', ['id'], { signal }),
      ];
      for (const call of calls) await expect(call()).rejects.toThrow('over');
      expect(await namesOf('aborted')).toEqual([]);
    });

    it('fails if the file to upload does not exist, or becomes shorter', async () => {
      await expect(store.upload('nothing', join(folder, 'none'))).rejects.toMatchObject({ code: 'INTERNAL' });
      const path = file(randomBytes(40 * MIB));
      const upload = store.upload('shrunk', path, { recordUpload: async () => truncateSync(path, 9 * MIB) });
      await expect(upload).rejects.toMatchObject({ code: 'INTERNAL' });
      expect(await namesOf('shrunk')).toEqual([]);
    });

    it.each([
      'plain',
      'deep/er/and/deeper',
      'with blanks and  two',
      'quotes \' and \\" and `',
      'percent %2F %20 100%',
      'plus+amp&eq=q?hash#semi;colon:comma,at@',
      'ünï-コード-🦔',
      '(brackets) [square] {curly} <angle> |pipe| ~tilde^',
      'trailing./dots..in/..names',
    ])('accepts any prefix: %s', async (part) => {
      const unusual = `${prefix}/${part}`;
      const other = stores.open(`/${unusual}/`);
      onTestFinished(() => other.close());
      const key = 'export_id=1/runs/year=2026/month=01/day=02/part 0=ü.parquet';
      const body = randomBytes(17 * MIB);
      expect((await other.upload(key, file(body))).bytes).toBe(body.length);
      await other.put(`${key}.json`, Buffer.from('{}'));
      expect(sha256(await other.get(key, { maxBytes: 64 * MIB }))).toBe(sha256(body));
      // The same object under another prefix.
      expect((await store.get(`${part}/${key}.json`, { maxBytes: 9 })).toString()).toBe('{}');
      expect(other.resolvePath(key).endsWith(`${unusual}/${key}`)).toBe(true);
    });

    it('rejects calls in flight when it is closed', async () => {
      const closing = stores.open(prefix);
      const reads = closing.get('large', { maxBytes: 3 * MIB }).then(
        () => 'read',
        (error) => error.code,
      );
      await closing.close();
      expect(['read', 'DESTINATION_UNAVAILABLE']).toContain(await reads);
    });
  });
}
