import { describe, expect, it } from 'vitest';
import { uuidv5 } from '../../../infra/ids/uuid-v5.ts';
import { uuidv7 } from '../../../infra/ids/uuid-v7.ts';

describe('uuidv7', () => {
  it('contains version, variant and timestamp', () => {
    const nowMs = Date.now() + 3_600_000;
    const id = uuidv7(nowMs);
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(Number.parseInt(id.replace('-', '').slice(0, 12), 16)).toBe(nowMs);
  });

  it('increases within a millisecond, after a counter overflow, and when the clock goes back', () => {
    const nowMs = Date.now() + 7_200_000;
    const ids = [...Array.from({ length: 10_000 }, () => uuidv7(nowMs)), uuidv7(nowMs - 1_000), uuidv7(nowMs + 60_000)];
    expect(ids).toEqual([...ids].sort());
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe('uuidv5', () => {
  // The first is an example of RFC 9562, A.4; the second was computed with Python's uuid module.
  it.each([
    ['www.example.com', '6ba7b810-9dad-11d1-80b4-00c04fd430c8', '2ed6657d-e927-568b-95e1-2665a8aea6a2'],
    ['agent', '6ba7b821-9dad-11d1-80b4-00c04fd430c8', 'fe096781-5601-53d2-b2f6-0d3403f7e9ca'],
  ])('of %s in %s is %s', (name, namespace, id) => {
    expect(uuidv5(name, namespace)).toBe(id);
  });
});
