import { describe, expect, it } from 'vitest';
import { PromiseCache } from '../../../infra/cache/promise-cache.ts';

describe('PromiseCache', () => {
  const cache = () => new PromiseCache<number>({ max: 10, ttlMs: 60_000 });

  it('loads a value once for concurrent callers and keeps it', async () => {
    const values = cache();
    let asked = 0;
    const ask = async () => ++asked;
    expect(await Promise.all([values.get('a', ask), values.get('a', ask)])).toEqual([1, 1]);
    expect(await values.get('a', ask)).toBe(1);
    expect(await values.get('b', ask)).toBe(2);
  });

  it('caches neither errors nor undefined', async () => {
    const values = cache();
    await expect(values.get('a', () => Promise.reject(new Error('down')))).rejects.toThrow('down');
    expect(await values.get('a', async () => undefined)).toBeUndefined();
    expect(await values.get('a', async () => 3)).toBe(3);
  });

  it('does not return a value whose load began before forget()', async () => {
    const values = cache();
    const answers: ((value: number) => void)[] = [];
    const ask = () => new Promise<number>((resolve) => answers.push(resolve));
    const before = values.get('a', ask);
    values.forget('a');
    const after = values.get('a', ask);
    answers[0]?.(1);
    answers[1]?.(2);
    expect([await before, await after]).toEqual([1, 2]);
    expect(await values.get('a', async () => 3)).toBe(2);
    values.clear();
    expect(await values.get('a', async () => 3)).toBe(3);
  });

  it('removes a value after its TTL', async () => {
    const values = new PromiseCache<number>({ max: 10, ttlMs: 1 });
    let value = 0;
    await expect.poll(() => values.get('a', async () => ++value)).toBeGreaterThan(1);
  });
});
