import { expect, test } from 'vitest';
import type { Answer } from '../crash/client.ts';
import { expectAcceptedOrRetryLater, expectMostAccepted } from '../crash/honest-answers.ts';

const accepted: Answer = { status: 202, retryAfterSeconds: 0, tookMs: 10 };
const refused: Answer = { status: 503, retryAfterSeconds: 1, tookMs: 10 };

const cases: readonly [what: string, answers: readonly (Answer | undefined)[], error?: RegExp][] = [
  ['accepted and refused requests', [accepted, refused]],
  ['no request', [], /requests/],
  ['a request without a response', [accepted, undefined], /neither accepted nor refused/],
  ['a refusal without Retry-After', [{ ...refused, retryAfterSeconds: 0 }], /neither accepted nor refused/],
  ['another error', [{ ...refused, status: 500 }], /neither accepted nor refused/],
  ['a late response', [{ ...accepted, tookMs: 101 }], /longer than 100 ms/],
];

test.each(cases)('all accepted or refused for now: %s', (_, answers, error) => {
  const check = () => expectAcceptedOrRetryLater(answers, 100);
  if (error) expect(check).toThrow(error);
  else check();
});

test.each([
  ['no request', []],
  ['half without a response', [accepted, undefined]],
])('most accepted: %s', (_, answers) => {
  expect(() => expectMostAccepted(answers)).toThrow(/accepted requests|requests/);
});
