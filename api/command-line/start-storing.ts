import { waitingDeadLetters } from '../../infra/event-log/event-log-metrics.ts';
import type { HealthCheck } from '../../infra/telemetry/telemetry-server.ts';
import { countUnreplayedDeadLetters } from '../../pipelines/dead-letters/dead-letter-replays.ts';
import { Sink } from '../../pipelines/ingest/sink/sink.ts';
import { startFactRollUp } from '../../pipelines/runs/stats/count-facts.ts';
import { startRollUp } from '../../pipelines/usage/rollup.ts';
import { topics } from '../../schemas/topics.ts';
import { openDeadLetters } from './open-event-log.ts';
import type { RoleParts } from './open-stores.ts';
import type { ShutdownSteps } from './shutdown-steps.ts';

/**
 * Starts the sink and the roll-ups of usage and of facts, for the roles `all` and `ingest`. At shutdown, the sink stops
 * first, so that the hours of its last insert batches are marked dirty while the roll-ups are still running.
 */
export async function startStoring(parts: RoleParts, shutdown: ShutdownSteps): Promise<HealthCheck[]> {
  const { config, logger } = parts;
  const { database, clickhouse } = parts.stores;
  const rollUp = startRollUp({ database, clickhouse, intervalMs: config.rollupIntervalMs, logger });
  shutdown.add('roll-up', () => rollUp.stop());
  const factRollUp = startFactRollUp({ database, clickhouse, intervalMs: config.rollupIntervalMs, logger });
  shutdown.add('fact roll-up', () => factRollUp.stop());
  const sink = await startSink({ ...parts, onHoursMarked: () => rollUp.wake() }, shutdown);
  // Statistics are complete without facts, so their roll-up does not decide whether the process is ready.
  return [
    { name: 'sink', check: () => sink.check() },
    { name: 'usage_roll_up', check: () => rollUp.check() },
  ];
}

/**
 * Starts the sink for every topic of the log, and the metric for pending dead-letter records. At shutdown, the log
 * first finishes the batches that it has delivered; then the sink stops.
 *
 * @throws the errors of the log and the stores.
 */
export async function startSink(
  parts: RoleParts & { readonly onHoursMarked: () => void },
  shutdown: ShutdownSteps,
): Promise<Sink> {
  const { config, logger, log, onHoursMarked } = parts;
  const { database, clickhouse } = parts.stores;
  const deadLetters = await openDeadLetters(parts, shutdown);
  const removeReader = waitingDeadLetters.setReader(() => countUnreplayedDeadLetters(deadLetters, topics));
  shutdown.add('dead-letter metric', async () => removeReader());
  const sink = new Sink({ log, clickhouse, database, config, logger, onHoursMarked });
  shutdown.add('sink', () => sink.stop());
  await sink.start(topics);
  // In-flight batches need both the log and the sink, so this step closes the log before the sink stops. The shutdown
  // step of the log itself runs later, because the log was opened first.
  shutdown.add('in-flight batches', () => log.close());
  return sink;
}
