import { expect, it } from 'vitest';
import { getTenantContext, runForTenant } from '../../../infra/fairness/tenant-context.ts';
import { startRepeating } from '../../../infra/timeouts/repeat.ts';
import { deferred } from '../deferred.ts';
import { until } from '../until.ts';

const maxPauseMs = 3_600_000;
const onFailure = (error: unknown) => {
  throw error;
};

it('does not overlap calls: any number of wakes during a call cause one more', async () => {
  const calls = [deferred(), deferred()];
  let begun = 0;
  const repeater = startRepeating(async () => calls[begun++]?.promise, { maxPauseMs, onFailure });
  for (let count = 0; count < 3; count += 1) repeater.wake();
  expect(begun).toBe(1);
  calls[0]?.resolve();
  await until('the second call', () => begun === 2);
  calls[1]?.resolve();
  await new Promise((resolve) => setImmediate(resolve));
  expect(begun).toBe(2);
  repeater.wake();
  await repeater.stop();
  expect(begun).toBe(3);
});

it('a request that wakes it does not pass on its organisation', async () => {
  const tenants: unknown[] = [];
  const repeater = startRepeating(async () => void tenants.push(getTenantContext()), { maxPauseMs, onFailure });
  await until('the first call', () => tenants.length === 1);
  await new Promise((resolve) => setImmediate(resolve));
  runForTenant({ organizationId: 'a' }, () => repeater.wake());
  await repeater.stop();
  expect(tenants).toEqual([undefined, undefined]);
});

it('calls again after the time that the work returned', async () => {
  let calls = 0;
  const repeater = startRepeating(
    async () => {
      calls += 1;
      return 1;
    },
    { maxPauseMs, onFailure },
  );
  await until('the third call', () => calls >= 3);
  await repeater.stop();
});

it('calls again after the maximum pause, also after a failure', async () => {
  let calls = 0;
  const failures: unknown[] = [];
  const repeater = startRepeating(
    async () => {
      calls += 1;
      if (calls === 1) throw new Error('The database is away');
      return maxPauseMs;
    },
    { maxPauseMs: 20, onFailure: (error) => failures.push(error) },
  );
  await until('three calls', () => calls >= 3);
  await repeater.stop();
  expect(failures).toEqual([new Error('The database is away')]);
});

it('aborts the signal when it is stopped, waits for the current call, and reports no failure of it', async () => {
  let calls = 0;
  let hasEnded = false;
  const repeater = startRepeating(
    async (signal) => {
      calls += 1;
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      hasEnded = true;
      throw signal.reason;
    },
    { maxPauseMs: 1, onFailure },
  );
  repeater.wake();
  await repeater.stop();
  repeater.wake();
  expect([calls, hasEnded]).toEqual([1, true]);
});
