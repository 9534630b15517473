import { expect, it } from 'vitest';
import { logLosses } from '../../../infra/jobs/log-losses.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';

it('logs one line for many losses in a row, without a stack, and other errors whole', () => {
  const lines: unknown[] = [];
  const logger = { warn: (line: unknown) => lines.push(line) } as unknown as Logger;
  const note = logLosses('Redis', logger);
  for (let n = 0; n < 100; n++) note(Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }), 'job');
  note(new Error('Connection is closed.'));
  expect(lines).toEqual([{ reason: 'ECONNREFUSED', leftOut: 0 }]);
  const other = new TypeError('of our own');
  note(other, 'job');
  expect(lines[1]).toEqual({ err: other, job: 'job' });
});
