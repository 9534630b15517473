import { describe, expect, it } from 'vitest';
import { Drain } from '../../../api/server/drain.ts';

describe('Drain', () => {
  it('finishes at once if no request is in flight', async () => {
    expect(await new Drain().start(60_000)).toBe(0);
  });

  it('waits for in-flight requests and rejects new ones', async () => {
    const drain = new Drain();
    drain.enter();
    drain.enter();
    const ended = drain.start(60_000);
    expect(() => drain.enter()).toThrow(expect.objectContaining({ code: 'DRAINING', retryAfterSeconds: 1 }));
    drain.leave();
    let settled = false;
    void ended.then(() => {
      settled = true;
    });
    await Promise.resolve();
    expect(settled).toBe(false);
    drain.leave();
    expect(await ended).toBe(0);
  });

  it('stops waiting at its timeout and returns the number of requests left', async () => {
    const drain = new Drain();
    drain.enter();
    expect(await drain.start(5)).toBe(1);
  });
});
