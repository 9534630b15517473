import { describe, expect, it } from 'vitest';
import { Drain } from '../../../api/server/drain.ts';

describe('Drain', () => {
  it('ends at once where nothing is under way', async () => {
    expect(await new Drain().start(60_000)).toBe(0);
  });

  it('waits for what is under way and refuses what comes', async () => {
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

  it('gives up when its time is over and says how many were left', async () => {
    const drain = new Drain();
    drain.enter();
    expect(await drain.start(5)).toBe(1);
  });
});
