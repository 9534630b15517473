import { expect, it, onTestFinished } from 'vitest';
import { openEventLog } from '../../../api/command-line/open-event-log.ts';
import { ShutdownSteps } from '../../../api/command-line/shutdown-steps.ts';
import { startExports } from '../../../api/command-line/start-exports.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import type { Jobs } from '../../../infra/jobs/jobs.ts';
import { openJobs } from '../../../infra/jobs/open-jobs.ts';
import { freshStores } from '../../engines/stores.ts';
import { folderForTest } from '../../folders.ts';
import { logger } from '../../silent-logger.ts';

it('takes RUNLAKE_EXPORT_CONCURRENCY export runs from the queue at once, and one more', async () => {
  const stores = await freshStores();
  const dataDir = folderForTest();
  const shutdown = new ShutdownSteps();
  onTestFinished(async () => {
    await shutdown.run(logger);
    await stores.close();
  });
  const { databaseUrl } = stores;
  const environment = { ...stores.environment, RUNLAKE_DATA_DIR: dataDir, RUNLAKE_EXPORT_CONCURRENCY: '5' };
  const { config } = loadConfig(environment);
  const { log } = await openEventLog({ config, logger, stores }, shutdown);
  const jobs = await openJobs({ databaseUrl, config, logger });
  shutdown.add('jobs', () => jobs.close());
  const concurrency = new Map<string, number | undefined>();
  const recording: Jobs = {
    ...jobs,
    work: (name, handler, options) => {
      concurrency.set(name, options?.concurrency);
      jobs.work(name, handler, options);
    },
  };
  await startExports({ config, logger, databaseUrl, stores, log, jobs: recording, secretKey: 'secret' }, shutdown);
  expect(concurrency.get('export-run')).toBe(6);
});
