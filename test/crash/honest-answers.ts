import { expect } from 'vitest';
import type { Answer } from './client.ts';

/** Each request was answered in time: accepted, or told to come back. */
export function expectHonestAnswers(answers: readonly (Answer | undefined)[], longestMs: number): void {
  const others = answers.filter((answer) => answer?.status !== 202);
  expect(
    others.filter((answer) => answer !== undefined && (answer.status !== 503 || !(answer.retryAfterSeconds > 0))),
    'neither accepted nor told to come back',
  ).toEqual([]);
  expect(
    answers.filter((answer) => (answer?.tookMs ?? 0) > longestMs),
    `longer than ${longestMs} ms`,
  ).toEqual([]);
}
