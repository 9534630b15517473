import { expect } from '@jest/globals';
import * as ls from 'langsmith/jest';

const square = (n) => (n === 3 ? 6 : n * n);

ls.describe('squares of jest', () => {
  ls.test.each([
    { inputs: { n: 1 }, referenceOutputs: { square: 1 } },
    { inputs: { n: 3 }, referenceOutputs: { square: 9 } },
  ])('is a square', async ({ inputs, referenceOutputs }) => {
    const result = { square: square(inputs.n) };
    ls.logOutputs(result);
    ls.logFeedback({ key: 'close', score: Math.abs(result.square - referenceOutputs.square) < 5 ? 1 : 0 });
    expect(result).toEqual(referenceOutputs);
  });
});
