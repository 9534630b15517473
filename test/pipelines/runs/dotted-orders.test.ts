import { describe, expect, it } from 'vitest';
import { ancestorIds, buildDottedOrder, type RunWithoutDottedOrder } from '../../../pipelines/runs/dotted-orders.ts';
import { noonMicros, uuidOf } from './run-events.ts';

const [root, a, b, c] = ['root', 'a', 'b', 'c'].map((name) => uuidOf(name)) as [string, string, string, string];
const segment = (second: number, id: string) => `20260305T12000${second}000000Z${id}`;

function run(runId: string, second: number, parentRunId?: string, dottedOrder?: string): RunWithoutDottedOrder {
  const startTimeMicros = noonMicros + second * 1_000_000;
  return { runId, traceId: root, startTimeMicros, traceTimeMicros: noonMicros, parentRunId, dottedOrder };
}

function orderOf(wanted: RunWithoutDottedOrder, ...others: RunWithoutDottedOrder[]): string {
  return buildDottedOrder(wanted, new Map([wanted, ...others].map((member) => [member.runId, member])));
}

describe('the dotted_order of a run', () => {
  const inRoot = [segment(0, root), segment(1, a)].join('.');
  it.each<[string, string, string]>([
    ['its own, unchanged', orderOf(run(a, 1, root, 'as it came'), run(root, 0)), 'as it came'],
    ['a root', orderOf(run(root, 2)), segment(2, root)],
    ['a child of the root', orderOf(run(a, 1, root), run(root, 0)), inRoot],
    ['a child of a root that never arrived', orderOf(run(a, 1, root)), inRoot],
    ['a root under its own id', orderOf(run(a, 1)), segment(1, a)],
    ['a child of a parent that never arrived', orderOf(run(a, 1, b)), inRoot],
    ['a grandchild', orderOf(run(b, 2, a), run(a, 1, root), run(root, 0)), [inRoot, segment(2, b)].join('.')],
    ['a parent that has one', orderOf(run(b, 2, a), run(a, 1, c, 'x.y')), `x.y.${segment(2, b)}`],
    ['the root has one', orderOf(run(a, 1, root), run(root, 5, undefined, 'r')), `r.${segment(1, a)}`],
    ['parents in a cycle', orderOf(run(a, 1, b), run(b, 2, a)), inRoot],
    ['its own parent', orderOf(run(a, 1, a)), inRoot],
  ])('%s', (_name, order, expected) => {
    expect(order).toBe(expected);
  });

  it('attaches a run with too many ancestors to the root', () => {
    const chain = [...Array(2_000).keys()].map((n) => run(uuidOf('chain', n), 1, uuidOf('chain', n + 1)));
    expect(orderOf(chain[0] as RunWithoutDottedOrder, ...chain)).toBe(
      [segment(0, root), segment(1, uuidOf('chain', 0))].join('.'),
    );
  });
});

it('ancestors are the ids of the segments before the last', () => {
  expect(ancestorIds([segment(0, root), segment(1, a), segment(2, b)].join('.'))).toEqual([root, a]);
  expect(ancestorIds(segment(0, root))).toEqual([]);
});
