import { expect, it } from 'vitest';
import { forEachConcurrently } from '../../../pipelines/exports/manifest.ts';

/** Returns work that ends when the test ends it. */
function held() {
  const open = new Map<number, { end(): void; fail(error: Error): void }>();
  const begun: number[] = [];
  const work = (item: number) => {
    begun.push(item);
    return new Promise<void>((resolve, reject) => {
      const end = () => {
        open.delete(item);
        resolve();
      };
      const fail = (error: Error) => {
        open.delete(item);
        reject(error);
      };
      open.set(item, { end, fail });
    });
  };
  /** Resolves when all pending microtasks have run. */
  const settled = () => new Promise<void>((resolve) => setImmediate(resolve));
  return { work, open, begun, settled };
}

it('starts the next item when one ends, and never exceeds the limit', async () => {
  const { work, open, begun, settled } = held();
  const all = forEachConcurrently(2, [1, 2, 3, 4], work);
  await settled();
  expect(begun).toEqual([1, 2]);
  open.get(2)?.end();
  await settled();
  expect(begun).toEqual([1, 2, 3]);
  while (open.size > 0) {
    for (const { end } of [...open.values()]) end();
    await settled();
  }
  await all;
  expect(begun).toEqual([1, 2, 3, 4]);
});

it('continues after a failure, and throws the first error at the end', async () => {
  const { work, open, begun, settled } = held();
  const rejected = expect(forEachConcurrently(1, [1, 2, 3], work)).rejects.toThrow('of 1');
  for (const item of [1, 2, 3]) {
    await settled();
    open.get(item)?.fail(new Error(`of ${item}`));
  }
  await rejected;
  expect(begun).toEqual([1, 2, 3]);
});

it('starts nothing more after an abort, and waits for the items in progress', async () => {
  const { work, open, begun, settled } = held();
  const end = new AbortController();
  const all = forEachConcurrently(2, [1, 2, 3, 4], work, end.signal);
  await settled();
  end.abort();
  open.get(1)?.end();
  await settled();
  open.get(2)?.end();
  await all;
  expect(begun).toEqual([1, 2]);
});

it('does nothing for an empty list', async () => {
  await forEachConcurrently(3, [], () => Promise.reject(new Error('nothing to do')));
});
