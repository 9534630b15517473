import { describe, expect, it } from 'vitest';
import { generateKey, hashKey, toShortKey } from '../../../pipelines/tenants/key-format.ts';

describe('keys', () => {
  it('are random and have one format', () => {
    const keys = new Set(Array.from({ length: 100 }, generateKey));
    expect(keys.size).toBe(100);
    for (const key of keys) expect(key).toMatch(/^rlk_[A-Za-z0-9_-]{43}$/);
  });

  it('are stored as their SHA-256', () => {
    expect(hashKey('abc').toString('hex')).toMatch(/^ba7816bf8f01cfea[0-9a-f]{48}$/);
  });

  it.each([
    ['rlk_0123456789012345678901234567890123456789abc', 'rlk_0123...9abc'],
    ['sixteen-char-key', 'si...ey'],
  ])('%s is displayed as %s', (key, short) => {
    expect(toShortKey(key)).toBe(short);
  });
});
