/**
 * Enqueues a delayed job and kills itself with SIGKILL as soon as the job is stored. Arguments: database address,
 * payload number, and Redis address or nothing.
 */
import { openJobs } from '../../../infra/jobs/open-jobs.ts';
import { logger } from '../../silent-logger.ts';
import { testCatalogue } from './test-catalogue.ts';

const [, , databaseUrl = '', number = '0', redisUrl = ''] = process.argv;
const jobs = await openJobs({
  databaseUrl,
  config: { redisUrl: redisUrl || undefined },
  logger,
  catalogue: testCatalogue,
});
await jobs.enqueue('quick', { n: Number(number) }, { delayMs: 700 });
process.kill(process.pid, 'SIGKILL');
