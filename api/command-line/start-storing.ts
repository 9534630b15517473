import type { Config } from '../../infra/config/settings.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import type { HealthCheck } from '../../infra/telemetry/health-check.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { startRollUp } from '../../pipelines/usage/rollup.ts';
import type { Ends } from './ends.ts';
import type { Stores } from './open-stores.ts';
import { startSink } from './start-sink.ts';

/**
 * Starts the sink and the usage roll-up, for `all` and `ingest`. At shutdown the sink stops first, so that the hours of
 * its last insert batches are marked dirty while the roll-up still runs.
 */
export async function startStoring(
  parts: { readonly config: Config; readonly logger: Logger; readonly stores: Stores; readonly log: EventLog },
  ends: Ends,
): Promise<HealthCheck[]> {
  const { config, logger } = parts;
  const { database, clickhouse } = parts.stores;
  const rollUp = startRollUp({ database, clickhouse, intervalMs: config.rollupIntervalMs, logger });
  ends.add('roll-up', () => rollUp.stop());
  const sink = await startSink({ ...parts, onHoursMarked: () => rollUp.wake() }, ends);
  return [
    { name: 'sink', check: () => sink.check() },
    { name: 'usage_roll_up', check: () => rollUp.check() },
  ];
}
