import { expect } from 'vitest';
import type { Answer } from './client.ts';

/** Checks that each request got a response in time: accepted, or 503 with Retry-After. There must be requests. */
export function expectAcceptedOrRetryLater(answers: readonly (Answer | undefined)[], maxMs: number): void {
  const isRetryLater = (answer: Answer | undefined) => answer?.status === 503 && answer.retryAfterSeconds > 0;
  expect(answers.length, 'requests').toBeGreaterThan(0);
  expect(
    answers.filter((answer) => answer?.status !== 202 && !isRetryLater(answer)),
    'neither accepted nor refused with Retry-After',
  ).toEqual([]);
  expect(
    answers.filter((answer) => (answer?.tookMs ?? 0) > maxMs),
    `longer than ${maxMs} ms`,
  ).toEqual([]);
}

/**
 * Checks that most requests were accepted, because the failed server is not needed to accept runs. Not all are: a busy
 * machine may starve a process for seconds, longer than a timeout of two seconds.
 */
export function expectMostAccepted(answers: readonly (Answer | undefined)[]): void {
  const accepted = answers.filter((answer) => answer?.status === 202).length;
  expect(answers.length, 'requests').toBeGreaterThan(0);
  expect(accepted / answers.length, 'share of accepted requests').toBeGreaterThan(0.5);
}
