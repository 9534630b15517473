import { expect, it, onTestFinished } from 'vitest';
import { createLossLogger, openJobs } from '../../../infra/jobs/open-jobs.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { freshStores } from '../../engines/stores.ts';
import { until } from '../until.ts';
import { testCatalogue } from './test-catalogue.ts';

it('logs one line without a stack for many consecutive connection losses, and other errors in full', () => {
  const lines: unknown[] = [];
  const logger = { warn: (line: unknown) => lines.push(line) } as unknown as Logger;
  const logLoss = createLossLogger('Redis', logger);
  for (let n = 0; n < 100; n++) logLoss(Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }), 'job');
  logLoss(new Error('Connection is closed.'));
  // From the pool of a Postgres that does not respond, for every kind of job.
  logLoss(new Error('timeout exceeded when trying to connect'), 'job');
  expect(lines).toEqual([{ reason: 'ECONNREFUSED', leftOut: 0 }]);
  const other = new TypeError('of our own');
  logLoss(other, 'job');
  expect(lines[1]).toEqual({ err: other, job: 'job' });
});

it('logs no loss of connections that are being closed: Postgres may stop before it has read that', async () => {
  const stores = await freshStores({ migrated: false });
  const { database, databaseUrl } = stores;
  const lines: unknown[] = [];
  const logger = { warn: (line: unknown) => lines.push(line) } as unknown as Logger;
  const jobs = await openJobs({ databaseUrl, config: {}, logger, catalogue: testCatalogue });
  // The first call also starts what a new queue does in the background. The pool serves that before the last of many calls.
  await Promise.all(Array.from({ length: 50 }, () => jobs.check()));
  const listBackends = async (condition = 'true') => {
    const sql = `SELECT pid FROM pg_stat_activity
      WHERE datname = current_database() AND application_name = 'runlake-jobs' AND ${condition}`;
    return (await database.query<{ pid: number }>(sql)).map(({ pid }) => pid);
  };
  await until('all connections to be idle', async () => (await listBackends(`state <> 'idle'`)).length === 0);
  const backends = await listBackends();
  const signal = (name: NodeJS.Signals) => backends.forEach((pid) => void process.kill(pid, name));
  signal('SIGSTOP');
  onTestFinished(async () => {
    if ((await listBackends()).length > 0) signal('SIGCONT');
    await stores.close();
  });
  await jobs.close();
  signal('SIGTERM');
  signal('SIGCONT');
  await until('Postgres to end the connections', async () => (await listBackends()).length === 0);
  // The errors have arrived before this response.
  await database.query('SELECT 1');
  expect(lines).toEqual([]);
});
