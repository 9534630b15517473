import { describe, expect, it } from 'vitest';
import { PromiseCache } from '../../../infra/cache/promise-cache.ts';

describe('PromiseCache', () => {
  const cache = () => new PromiseCache<number>({ max: 10, ttlMs: 60_000 });

  it('asks once for many at the same moment, and remembers', async () => {
    const kept = cache();
    let asked = 0;
    const ask = async () => ++asked;
    expect(await Promise.all([kept.get('a', ask), kept.get('a', ask)])).toEqual([1, 1]);
    expect(await kept.get('a', ask)).toBe(1);
    expect(await kept.get('b', ask)).toBe(2);
  });

  it('keeps neither failures nor undefined', async () => {
    const kept = cache();
    await expect(kept.get('a', () => Promise.reject(new Error('down')))).rejects.toThrow('down');
    expect(await kept.get('a', async () => undefined)).toBeUndefined();
    expect(await kept.get('a', async () => 3)).toBe(3);
  });

  it('gives nobody an answer that was asked for before it was told to forget', async () => {
    const kept = cache();
    const answers: ((value: number) => void)[] = [];
    const ask = () => new Promise<number>((resolve) => answers.push(resolve));
    const before = kept.get('a', ask);
    kept.forget('a');
    const after = kept.get('a', ask);
    answers[0]?.(1);
    answers[1]?.(2);
    expect([await before, await after]).toEqual([1, 2]);
    expect(await kept.get('a', async () => 3)).toBe(2);
    kept.clear();
    expect(await kept.get('a', async () => 3)).toBe(3);
  });

  it('forgets by itself after its time', async () => {
    const kept = new PromiseCache<number>({ max: 10, ttlMs: 1 });
    let value = 0;
    await expect.poll(() => kept.get('a', async () => ++value)).toBeGreaterThan(1);
  });
});
