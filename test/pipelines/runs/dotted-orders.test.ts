import { describe, expect, it } from 'vitest';
import {
  buildDottedOrder,
  listAncestorIds,
  type RunWithoutDottedOrder,
} from '../../../pipelines/runs/dotted-orders.ts';
import { deriveUuid, noonMicros } from './run-events.ts';

const [root, a, b, c] = ['root', 'a', 'b', 'c'].map((name) => deriveUuid(name)) as [string, string, string, string];
const segment = (second: number, id: string) => `20260305T12000${second}000000Z${id}`;

function run(runId: string, second: number, parentRunId?: string, dottedOrder?: string): RunWithoutDottedOrder {
  const startTimeMicros = noonMicros + second * 1_000_000;
  return { runId, traceId: root, startTimeMicros, traceTimeMicros: noonMicros, parentRunId, dottedOrder };
}

function buildOrder(wanted: RunWithoutDottedOrder, ...others: RunWithoutDottedOrder[]): string {
  return buildDottedOrder(wanted, new Map([wanted, ...others].map((member) => [member.runId, member])));
}

describe('the dotted_order of a run', () => {
  const childOrder = [segment(0, root), segment(1, a)].join('.');
  it.each<[string, string, string]>([
    ['its own, unchanged', buildOrder(run(a, 1, root, 'as it came'), run(root, 0)), 'as it came'],
    ['a root', buildOrder(run(root, 2)), segment(2, root)],
    ['a child of the root', buildOrder(run(a, 1, root), run(root, 0)), childOrder],
    ['a child of a root that never arrived', buildOrder(run(a, 1, root)), childOrder],
    ['a root under its own id', buildOrder(run(a, 1)), segment(1, a)],
    ['a child of a parent that never arrived', buildOrder(run(a, 1, b)), childOrder],
    ['a grandchild', buildOrder(run(b, 2, a), run(a, 1, root), run(root, 0)), [childOrder, segment(2, b)].join('.')],
    ['a parent that has one', buildOrder(run(b, 2, a), run(a, 1, c, 'x.y')), `x.y.${segment(2, b)}`],
    ['the root has one', buildOrder(run(a, 1, root), run(root, 5, undefined, 'r')), `r.${segment(1, a)}`],
    ['parents in a cycle', buildOrder(run(a, 1, b), run(b, 2, a)), childOrder],
    ['its own parent', buildOrder(run(a, 1, a)), childOrder],
  ])('%s', (_name, order, expected) => {
    expect(order).toBe(expected);
  });

  it('attaches a run with too many ancestors to the root', () => {
    const chain = [...Array(2_000).keys()].map((n) => run(deriveUuid('chain', n), 1, deriveUuid('chain', n + 1)));
    expect(buildOrder(chain[0] as RunWithoutDottedOrder, ...chain)).toBe(
      [segment(0, root), segment(1, deriveUuid('chain', 0))].join('.'),
    );
  });
});

it('ancestors are the ids of the segments before the last', () => {
  expect(listAncestorIds([segment(0, root), segment(1, a), segment(2, b)].join('.'))).toEqual([root, a]);
  expect(listAncestorIds(segment(0, root))).toEqual([]);
});
