import * as ls from 'langsmith/vitest';
import { expect } from 'vitest';

const square = (n: number) => (n === 3 ? 6 : n * n);

ls.describe('squares of vitest', () => {
  ls.test.each([
    { inputs: { n: 1 }, referenceOutputs: { square: 1 } },
    { inputs: { n: 3 }, referenceOutputs: { square: 9 } },
  ])('is a square', async ({ inputs, referenceOutputs }) => {
    const result = { square: square(inputs.n as number) };
    ls.logOutputs(result);
    ls.logFeedback({ key: 'close', score: Math.abs(result.square - (referenceOutputs?.square as number)) < 5 ? 1 : 0 });
    expect(result).toEqual(referenceOutputs);
  });
});
