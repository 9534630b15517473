import { expect, it } from 'vitest';
import { createLossLogger } from '../../../infra/jobs/open-jobs.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';

it('logs one line without a stack for many consecutive connection losses, and other errors in full', () => {
  const lines: unknown[] = [];
  const logger = { warn: (line: unknown) => lines.push(line) } as unknown as Logger;
  const logLoss = createLossLogger('Redis', logger);
  for (let n = 0; n < 100; n++) logLoss(Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }), 'job');
  logLoss(new Error('Connection is closed.'));
  expect(lines).toEqual([{ reason: 'ECONNREFUSED', leftOut: 0 }]);
  const other = new TypeError('of our own');
  logLoss(other, 'job');
  expect(lines[1]).toEqual({ err: other, job: 'job' });
});
