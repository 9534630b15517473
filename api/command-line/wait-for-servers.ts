import type { Config } from '../../infra/config/settings.ts';
import type { ErrorCode } from '../../infra/errors/catalogue.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { HealthCheck } from '../../infra/telemetry/health-check.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { backoffMs, pause } from '../../infra/timeouts/backoff.ts';
import { settlesBeforeTimeout } from '../../infra/timeouts/with-timeout.ts';
import { trustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import type { Stores } from './open-stores.ts';

/** Errors of an unavailable server. Any other error at start needs the operator and ends the process. */
const awayCodes: ReadonlySet<ErrorCode> = new Set([
  'CLICKHOUSE_UNAVAILABLE',
  'DATABASE_UNAVAILABLE',
  'KAFKA_UNAVAILABLE',
  'REGISTRY_UNAVAILABLE',
  'EVENT_LOG_UNAVAILABLE',
  'JOBS_UNAVAILABLE',
  'PART_SILENT',
]);

const probeTimeoutMs = 10_000;
const firstPauseMs = 100;
const maxPauseMs = 2_000;
/** Interval of repeated log lines for a server that stays unavailable. */
const logAgainMs = 30_000;

export function isAway(error: unknown): error is RunlakeError {
  return isRunlakeError(error) && awayCodes.has(error.code);
}

/** Returns a health check for each server of the role. Each connects at its first check; embedded engines are already up. */
export async function openServerProbes(
  config: Config,
  { clickhouse, database }: Stores,
  logger: Logger,
): Promise<{ readonly healthChecks: readonly HealthCheck[]; close(): Promise<void> }> {
  const { kafkaBrokers, redisUrl } = config;
  const kafka =
    kafkaBrokers === undefined
      ? undefined
      : (await import('../../infra/event-log/kafka/health.ts')).openKafkaProbe(config, logger);
  const redis = redisUrl === undefined ? undefined : (await import('../../infra/jobs/redis-backend.ts')).askRedis;
  return {
    healthChecks: [
      { name: 'postgres', check: () => database.ping() },
      { name: 'clickhouse', check: () => clickhouse.ping() },
      ...(kafka?.healthChecks ?? []),
      ...(redis ? [{ name: 'redis', check: () => redis(redisUrl as string, trustedAuthorities(config)) }] : []),
    ],
    close: async () => kafka?.close(),
  };
}

/**
 * Resolves when all servers respond in the same round, or when `signal` is aborted.
 * @param onWaiting receives the names of the unavailable servers after each round.
 * @throws the first error that does not mean an unavailable server.
 */
export async function waitForServers(
  checks: readonly HealthCheck[],
  options: {
    readonly logger: Logger;
    readonly signal: AbortSignal;
    readonly onWaiting: (servers: readonly string[]) => void;
  },
): Promise<void> {
  const { logger, signal, onWaiting } = options;
  const loggedAtMs = new Map<string, number>();
  for (let round = 0; !signal.aborted; round++) {
    const away = (await Promise.all(checks.map(probeServer))).filter((each) => each !== undefined);
    if (signal.aborted) return;
    onWaiting(away.map(({ name }) => name));
    for (const { name, err } of away) {
      if (performance.now() - (loggedAtMs.get(name) ?? Number.NEGATIVE_INFINITY) < logAgainMs) continue;
      loggedAtMs.set(name, performance.now());
      logger.warn({ server: name, err, remedy: err.remedy }, 'waiting for a server');
    }
    for (const name of loggedAtMs.keys()) {
      if (away.some((each) => each.name === name)) continue;
      loggedAtMs.delete(name);
      logger.info({ server: name }, 'server answers');
    }
    if (away.length === 0) return;
    await pause(backoffMs(round, firstPauseMs, maxPauseMs), signal);
  }
}

/** @returns undefined if the server responds. */
async function probeServer({ name, check }: HealthCheck): Promise<{ name: string; err: RunlakeError } | undefined> {
  const answer = check();
  try {
    if (!(await settlesBeforeTimeout(answer, probeTimeoutMs)))
      throw runlakeError('PART_SILENT', { part: name, limitMs: probeTimeoutMs });
    await answer;
    return undefined;
  } catch (err) {
    if (!isAway(err)) throw err;
    return { name, err };
  }
}
