import { expect, it } from 'vitest';
import { endSlice, runInTimeSlices, sortInSteps } from '../../../infra/timeouts/time-slices.ts';

const stepMs = 3;

it('all work together blocks a turn of the event loop for one time slice', async () => {
  let stepsInTurn = 0;
  const stepsByTurn: number[] = [];
  const countTurns = () => {
    stepsByTurn.push(stepsInTurn);
    stepsInTurn = 0;
    turn = setImmediate(countTurns);
  };
  let turn = setImmediate(countTurns);
  const work = async () => {
    for (let step = 0; step < 10; step += 1) {
      for (const untilMs = performance.now() + stepMs; performance.now() < untilMs; );
      stepsInTurn += 1;
      const later = endSlice();
      if (later) await later;
    }
  };
  await Promise.all(Array.from({ length: 30 }, work));
  clearImmediate(turn);
  // The first turn has a step of each work. A time slice has at most four steps, and two may lie between two counts.
  expect(Math.max(...stepsByTurn.slice(1))).toBeLessThanOrEqual(8);
});

it.each([0, 1, 999, 1_000, 1_001, 5_500])(
  'sorts %i items as a list does, and keeps the order of equal ones',
  async (count) => {
    const items = Array.from({ length: count }, (_, index) => ({ index, rank: (index * 7_919) % 101 }));
    const compare = (one: { rank: number }, other: { rank: number }) => one.rank - other.rank;
    expect(await runInTimeSlices(sortInSteps(items, compare))).toEqual([...items].sort(compare));
  },
);
