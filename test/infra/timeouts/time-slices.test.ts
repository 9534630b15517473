import { expect, it } from 'vitest';
import { endSlice } from '../../../infra/timeouts/time-slices.ts';

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
