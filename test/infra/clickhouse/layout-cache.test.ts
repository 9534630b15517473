import { setImmediate } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { LayoutCache } from '../../../infra/clickhouse/layout-cache.ts';
import type { Layout } from '../../../infra/clickhouse/settings.ts';

const layoutOf = (replicas: number): Layout => ({ kind: 'replicated', replicas, isShared: false });

function openCache() {
  const reads: ((result: Layout | Error) => Promise<void>)[] = [];
  const clock = { nowMs: 0 };
  const read = () =>
    new Promise<Layout>((resolve, reject) => {
      reads.push((result) => {
        if (result instanceof Error) reject(result);
        else resolve(result);
        return setImmediate();
      });
    });
  return { cache: new LayoutCache(read, () => clock.nowMs), reads, clock };
}

it('statements that come before the first layout wait for one read', async () => {
  const { cache, reads } = openCache();
  const waiting = [cache.get(), cache.get()];
  await reads[0]?.(layoutOf(1));
  expect(await Promise.all(waiting)).toEqual([layoutOf(1), layoutOf(1)]);
  expect(reads).toHaveLength(1);
});

it('a first read that fails is repeated', async () => {
  const { cache, reads } = openCache();
  const waiting = cache.get();
  void reads[0]?.(new Error('no response'));
  await expect(waiting).rejects.toThrow('no response');
  const again = cache.get();
  void reads[1]?.(layoutOf(1));
  expect(await again).toEqual(layoutOf(1));
});

it('no statement waits while a known layout is read again, until it is too old', async () => {
  const { cache, reads, clock } = openCache();
  void cache.get();
  await reads[0]?.(layoutOf(1));
  clock.nowMs = 60_000;
  await cache.get();
  expect(reads).toHaveLength(1);
  clock.nowMs = 61_000;
  expect(await Promise.all([cache.get(), cache.get()])).toEqual([layoutOf(1), layoutOf(1)]);
  expect(reads).toHaveLength(2);
  await reads[1]?.(new Error('no response'));
  expect(await cache.get()).toEqual(layoutOf(1));
  expect(reads).toHaveLength(3);
  await reads[2]?.(layoutOf(2));
  expect(await cache.get()).toEqual(layoutOf(2));
  expect(reads).toHaveLength(3);
  // Nothing was sent for a long time.
  clock.nowMs = 600_000;
  const waiting = cache.get();
  void reads[3]?.(layoutOf(3));
  expect(await waiting).toEqual(layoutOf(3));
});
