import { describe, expect, it } from 'vitest';
import { walkParents } from '../../../pipelines/runs/descendant-figures.ts';
import { listAncestorIds, type RunWithoutDottedOrder, TraceTree } from '../../../pipelines/runs/dotted-orders.ts';
import type { TraceMember } from '../../../pipelines/runs/trace-facts.ts';
import { deriveUuid, noonMicros } from './run-events.ts';

const [root, a, b, c] = ['root', 'a', 'b', 'c'].map((name) => deriveUuid(name)) as [string, string, string, string];
const segment = (second: number, id: string) => `20260305T12000${second}000000Z${id}`;

function run(runId: string, second: number, parentRunId?: string, dottedOrder?: string): RunWithoutDottedOrder {
  const startTimeMicros = noonMicros + second * 1_000_000;
  return { runId, traceId: root, startTimeMicros, traceTimeMicros: noonMicros, parentRunId, dottedOrder };
}

function buildOrder(wanted: RunWithoutDottedOrder, ...others: RunWithoutDottedOrder[]): string {
  return new TraceTree([wanted, ...others]).buildDottedOrder(wanted);
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

  it.each<[string, RunWithoutDottedOrder, RunWithoutDottedOrder[]]>([
    ['of a root', run(root, 2), []],
    ['of a child of a root that never arrived', run(a, 1, root), []],
    ['of a root under its own id', run(a, 1), []],
    ['of a child of such a root', run(b, 1, a), [run(a, 1)]],
    ['of a child of a parent that never arrived', run(a, 1, b), []],
    ['of a grandchild', run(b, 2, a), [run(a, 1, root), run(root, 0)]],
    ['below a run that has one', run(b, 2, a), [run(a, 1, c, `${segment(0, root)}.${segment(1, c)}.${segment(1, a)}`)]],
    ['below a root that has one', run(a, 1, root), [run(root, 5, undefined, `${segment(0, c)}.${segment(5, root)}`)]],
    ['of parents in a cycle', run(a, 1, b), [run(b, 2, a)]],
    ['that it has', run(a, 1, b, `${segment(0, root)}.${segment(1, a)}`), [run(b, 2, root)]],
  ])('has the same ids as the list of ancestors %s', (_name, wanted, others) => {
    const tree = new TraceTree([wanted, ...others], new Set([root, b]));
    const ids = listAncestorIds(tree.buildDottedOrder(wanted));
    expect(tree.listAncestorIds(wanted)).toEqual(ids);
    expect(tree.listWantedAncestorIds(wanted)).toEqual(ids.filter((id) => id === root || id === b));
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

describe('a trace of 10,000 runs without dotted_order, 900 deep', () => {
  let steps = 0;
  /** Counts how often the parent of a run is read. */
  const counting = (member: TraceMember): TraceMember => ({
    ...member,
    get parentRunId() {
      steps += 1;
      return member.parentRunId;
    },
  });
  const id = (name: string, n: number) => deriveUuid(name, n);
  const chain = [...Array(900).keys()].map((n) => run(id('step', n), 1, n === 0 ? root : id('step', n - 1)));
  const bottom = id('step', 899);
  const below = [...Array(9_100).keys()].map((n) => ({ ...run(id('call', n), 2, bottom), isModelCall: true }));
  const members = [run(root, 0), ...chain, ...below].map(counting);

  it('follows each parent once to list descendants of some runs', () => {
    steps = 0;
    const wanted = new Set([root, id('step', 450)]);
    const tree = new TraceTree(members, wanted);
    const listed = members.flatMap((member) => tree.listWantedAncestorIds(member));
    expect(listed.length).toBe(901 - 1 + 9_100 + (899 - 450) + 9_100);
    expect(steps).toBeLessThan(10 * members.length);
  });

  it('lists the ancestors of the calls once for each parent', () => {
    steps = 0;
    const { parents, ancestors } = walkParents(members, 1_000_000);
    expect(parents.map(([traceId, parentId, ids]) => [traceId, parentId, ids.split('.').length])).toEqual([
      [root, bottom, 901],
    ]);
    expect(ancestors).toBe(901);
    expect(steps).toBeLessThan(10 * members.length);
  });

  it('lists only the parent and the root after the maximum number of ancestors', () => {
    const calls = chain.map((member) => ({ ...member, isModelCall: true }));
    const { parents, ancestors } = walkParents([run(root, 0), ...calls], 5_000);
    expect(ancestors).toBeLessThan(5_000 + 900 + 2 * 900);
    expect(parents.at(-1)).toEqual([root, id('step', 898), `${root}.${id('step', 898)}`]);
  });
});
