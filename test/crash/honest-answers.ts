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

/**
 * What stood still or died is nothing that accepting runs needs: most requests were accepted at once. Not each: for
 * some seconds a busy machine may give nobody a turn, and a limit of two seconds is over then.
 */
export function expectMostAccepted(answers: readonly (Answer | undefined)[]): void {
  const accepted = answers.filter((answer) => answer?.status === 202).length;
  expect(answers.length, 'requests').toBeGreaterThan(0);
  expect(accepted / answers.length, 'share of accepted requests').toBeGreaterThan(0.5);
}
