import { setImmediate } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { ServerChoice } from '../../../infra/clickhouse/server-choice.ts';

function openChoice() {
  const checks: { readonly server: string; readonly finish: (isUp: boolean) => Promise<void> }[] = [];
  const clock = { nowMs: 0 };
  const check = (server: string) =>
    new Promise<void>((resolve, reject) => {
      const finish = (isUp: boolean) => {
        if (isUp) resolve();
        else reject(new Error('no response'));
        return setImmediate();
      };
      checks.push({ server, finish });
    });
  return { choice: new ServerChoice(['a', 'b', 'c'], check, () => clock.nowMs), checks, clock };
}

it('servers are tried in turn', () => {
  const { choice, checks } = openChoice();
  const orders = [choice.order(), choice.order(), choice.order(), choice.order()];
  expect(orders.map((order) => order.join(''))).toEqual(['abc', 'bca', 'cab', 'abc']);
  expect(checks).toEqual([]);
});

it('each list of servers has its own turns', () => {
  const { choice } = openChoice();
  const [first, second] = [
    ['a', 'b'],
    ['b', 'c'],
  ];
  const orders = [first, second, first, second, undefined].map((among) => choice.order(among).join(''));
  expect(orders).toEqual(['ab', 'bc', 'ba', 'cb', 'abc']);
});

it('a server that did not respond comes last until it passes a check', async () => {
  const { choice, checks, clock } = openChoice();
  choice.recordFailure('b');
  const isLast = () => [1, 2, 3].every(() => choice.order().at(-1) === 'b');
  clock.nowMs = 4_999;
  expect([isLast(), checks.length]).toEqual([true, 0]);
  clock.nowMs = 60_000;
  expect([isLast(), checks.map(({ server }) => server)]).toEqual([true, ['b']]);
  // The check takes long: there is no second one, also if another statement fails.
  clock.nowMs = 70_000;
  choice.recordFailure('b');
  expect([isLast(), checks.length]).toEqual([true, 1]);
  await checks[0]?.finish(false);
  expect([isLast(), checks.length]).toEqual([true, 1]);
  clock.nowMs = 75_000;
  expect([isLast(), checks.length]).toEqual([true, 2]);
  await checks[1]?.finish(true);
  expect([isLast(), checks.length]).toEqual([false, 2]);
});
