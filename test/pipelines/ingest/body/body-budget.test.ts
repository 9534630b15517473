import { expect, it } from 'vitest';
import { BodyBudget, type BodyShare, getBodyBudget } from '../../../../pipelines/ingest/body/body-budget.ts';
import fc from '../../../house/fast-check.ts';

/** Opens a body whose client is still sending; `displacedBy` is the error that ended the body. */
function openBody(budget: BodyBudget, tenant: string, bytes = 0): { share: BodyShare; displacedBy?: Error } {
  const body: { share: BodyShare; displacedBy?: Error } = {
    share: budget.open(tenant, (error) => {
      body.displacedBy = error;
    }),
  };
  if (bytes > 0) body.share.take(bytes);
  return body;
}
const overloaded = expect.objectContaining({ code: 'OVERLOADED', retryAfterSeconds: 1 });

it('a single organisation may use the whole budget, and no more', () => {
  const budget = new BodyBudget(100);
  openBody(budget, 'a', 60);
  const second = openBody(budget, 'a', 40);
  expect(() => second.share.take(1)).toThrow(overloaded);
  second.share.close();
  openBody(budget, 'a', 40);
});

it('a body that never fits is refused for good, a large page with an error that may pass', () => {
  const share = openBody(new BodyBudget(100), 'a', 60).share;
  expect(() => share.take(41)).toThrow(expect.objectContaining({ code: 'BODY_TOO_LARGE', status: 413 }));
  const page = openBody(new BodyBudget(100), 'a').share;
  page.takePage(0, 80);
  page.takePage(0, 80);
  expect(() => page.takePage(0, 80)).toThrow(overloaded);
});

it('bodies that are still arriving are refused for an organisation below its share, the largest first', () => {
  const budget = new BodyBudget(100);
  const flood = [20, 50, 30].map((bytes) => openBody(budget, 'a', bytes));
  const quiet = openBody(budget, 'b', 30);
  expect(flood.map(({ displacedBy }) => displacedBy)).toEqual([undefined, overloaded, undefined]);
  // Each share is now 50: an organisation that would exceed it is refused, and so are further bytes of the displaced
  // body.
  expect(() => flood[0]?.share.take(21)).toThrow(overloaded);
  expect(() => flood[1]?.share.take(1)).toThrow(overloaded);
  expect(quiet.displacedBy).toBeUndefined();
});

it('received bodies stay; a quarter more is available for organisations below their share', () => {
  const budget = new BodyBudget(100);
  const arrived = openBody(budget, 'a', 100);
  arrived.share.waitsForClient = false;
  const quiet = openBody(budget, 'b', 25);
  expect(() => quiet.share.take(1)).toThrow(overloaded);
  expect(() => openBody(budget, 'a', 1)).toThrow(overloaded);
  expect(arrived.displacedBy).toBeUndefined();
  arrived.share.close();
  quiet.share.take(75);
});

it('the servers of a process share one budget, although each has its own copy of the configuration', () => {
  const config = { maxCollectingBytes: 100 };
  getBodyBudget(config)
    .open('a', () => undefined)
    .take(60);
  const share = getBodyBudget({ ...config }).open('a', () => undefined);
  expect(() => share.take(60)).toThrow(overloaded);
});

it('an organisation above half of the budget is slowed down, even if it is alone, and others are not', () => {
  const budget = new BodyBudget(100);
  const first = openBody(budget, 'a', 50);
  const second = openBody(budget, 'a');
  expect(second.share.pauseMs(2 ** 21)).toBe(0);
  second.share.take(1);
  expect(second.share.pauseMs(2 ** 21)).toBe(1_000);
  expect(openBody(budget, 'b', 1).share.pauseMs(2 ** 21)).toBe(0);
  first.share.close();
  expect(second.share.pauseMs(2 ** 21)).toBe(0);
});

const step = fc.oneof(
  fc.record({ do: fc.constant('open' as const), tenant: fc.constantFrom('a', 'b', 'c') }),
  fc.record({ do: fc.constant('take' as const), which: fc.nat(), bytes: fc.integer({ min: 1, max: 60 }) }),
  fc.record({ do: fc.constant('close' as const), which: fc.nat() }),
  fc.record({ do: fc.constant('arrive' as const), which: fc.nat() }),
);

it('any sequence keeps the limit, refuses an organisation below its share only above the extra quarter, and releases everything', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const budget = new BodyBudget(100);
      const open: { tenant: string; body: ReturnType<typeof openBody> }[] = [];
      const sum = (tenant?: string) =>
        open.reduce(
          (all, each) => (tenant === undefined || each.tenant === tenant ? all + each.body.share.bytes : all),
          0,
        );
      for (const next of steps) {
        if (next.do === 'open') open.push({ tenant: next.tenant, body: openBody(budget, next.tenant) });
        else if (open.length > 0) {
          const chosen = open[next.which % open.length] as (typeof open)[number];
          if (next.do === 'arrive') chosen.body.share.waitsForClient = false;
          else if (next.do === 'close') {
            chosen.body.share.close();
            open.splice(open.indexOf(chosen), 1);
          } else if (chosen.body.displacedBy === undefined) {
            const before = { own: sum(chosen.tenant), all: sum() };
            try {
              chosen.body.share.take(next.bytes);
            } catch {
              expect(before.all + next.bytes).toBeGreaterThan(100);
              // With at most three organisations, each may always use a third.
              const isBelowShare = before.own + next.bytes <= 33;
              if (isBelowShare) expect(sum() + next.bytes).toBeGreaterThan(125);
            }
          }
        }
        expect(sum()).toBeLessThanOrEqual(125);
      }
      for (const { body } of open) body.share.close();
      expect(sum()).toBe(0);
      openBody(budget, 'd', 100);
    }),
    { numRuns: 500 },
  );
});
