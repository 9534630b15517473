/**
 * A separate process that rolls up usage, for the tests that kill the process. Its argument selects what the process
 * does after it has written a line: `loop` continues until SIGTERM; `hang-before-count`, `hang-within-count` and
 * `hang-after-count` block forever at that step.
 */
import { openClickHouse } from '../../../infra/clickhouse/client.ts';
import { openDatabase } from '../../../infra/postgres/pool.ts';
import { createLogger } from '../../../infra/telemetry/logger.ts';
import { runRollUp, startRollUp } from '../../../pipelines/usage/rollup.ts';
import { wrapCommands } from '../../engines/on-stored-table.ts';

const mode = process.argv[2];
const logger = createLogger('error', 'test');
const clickhouse = openClickHouse({
  url: String(process.env.TEST_CLICKHOUSE_URL),
  cluster: process.env.RUNLAKE_CLICKHOUSE_CLUSTER,
  logger,
  timeoutMs: 10_000,
});
const database = openDatabase({ url: String(process.env.TEST_DATABASE_URL), logger, timeoutMs: 10_000 });

if (mode === 'loop') {
  const rollUp = startRollUp({ database, clickhouse, intervalMs: 20, logger });
  process.once('SIGTERM', async () => {
    await rollUp.stop();
    await clickhouse.close();
    await database.close();
  });
  console.log('running');
} else {
  const hang = () => {
    console.log('hanging');
    return new Promise<never>(() => setInterval(() => {}, 60_000));
  };
  await runRollUp({
    database,
    clickhouse: wrapCommands(clickhouse, async (command, run) => {
      if (command.name !== 'count-usage-hours') return run();
      if (mode === 'hang-before-count') return hang();
      if (mode === 'hang-after-count') {
        await run();
        return hang();
      }
      // Processes one row at a time, so that the query is still running when the process is killed.
      const sql = command.sql.replace('GROUP BY', 'WHERE sleepEachRow(1) = 0 GROUP BY');
      const [server = clickhouse] = clickhouse.servers;
      const counting = server.command({ ...command, sql, settings: { ...command.settings, max_block_size: '1' } });
      console.log('counting');
      return counting;
    }),
  });
}
