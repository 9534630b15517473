/**
 * Starts a role. During startup, waits for servers that are unavailable.
 *
 *   1. The role listens: `/ok` responds with 200, `/ready` with 503 and the state of each server, and any other
 *      request with 503 STARTING.
 *   2. The role checks all servers with a configured address until all of them respond.
 *   3. The parts start (`serve-role.ts`). If a server becomes unavailable, the started parts end, and startup returns
 *      to step 2.
 *   4. The listener opens: requests are served, and `/ready` checks the parts.
 *
 * The role waits only for unavailable servers (`isUnavailable`). Other errors, such as a wrong password or a refused
 * schema, end startup.
 */
import type { Config } from '../../infra/config/settings.ts';
import type { ErrorCode } from '../../infra/errors/catalogue.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { HealthCheck } from '../../infra/telemetry/telemetry-server.ts';
import { computeBackoffMs, pause } from '../../infra/timeouts/backoff.ts';
import { settlesBeforeTimeout } from '../../infra/timeouts/with-timeout.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import type { Stores } from './open-stores.ts';
import { listenForRole } from './role-listener.ts';
import { type RoleDeps, type ServedRole, serveRole } from './serve-role.ts';
import { ShutdownSteps } from './shutdown-steps.ts';

/** Starts a role. @throws the errors of the parts, except the errors of unavailable servers. */
export async function startRole(parts: Omit<RoleDeps, 'listener'>): Promise<Pick<ServedRole, 'replaced'>> {
  const { config, logger, stores, shutdown, loaded } = parts;
  const probes = await openServerProbes(config, stores, logger);
  shutdown.add('server probes', () => probes.close());
  const listener = await listenForRole({ config, logger, mainApi: loaded.mainApi }, probes.healthChecks);
  // `/ready` responds until all other parts have ended.
  shutdown.add('listener', () => listener.close());
  const stopping = new AbortController();
  let partShutdown = new ShutdownSteps();
  shutdown.add('parts of the role', () => partShutdown.run(logger));
  shutdown.add('start', () => stopping.abort());

  for (let attempt = 0; ; attempt++) {
    await waitForServers(probes.healthChecks, {
      logger,
      signal: stopping.signal,
      onWaiting: (servers) => listener.waitFor(servers.join(', ') || 'its parts'),
    });
    try {
      const served = await serveRole({ ...parts, shutdown: partShutdown, listener });
      await probes.close();
      served.open();
      return served;
    } catch (error) {
      if (stopping.signal.aborted || !isUnavailable(error)) throw error;
      logger.warn({ err: error }, 'server became unavailable during start, restarting the parts');
      await partShutdown.run(logger);
      partShutdown = new ShutdownSteps();
      await pause(computeBackoffMs(attempt, 200, 5_000), stopping.signal);
    }
  }
}

/**
 * Error codes of an unavailable server. Any other error during startup ends the process, because only the operator can
 * correct its cause.
 */
const unavailableCodes: ReadonlySet<ErrorCode> = new Set([
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
/** Interval at which log lines are repeated while a server stays unavailable. */
const logIntervalMs = 30_000;

export function isUnavailable(error: unknown): error is RunlakeError {
  return isRunlakeError(error) && unavailableCodes.has(error.code);
}

/**
 * Returns a health check for each server that the role uses. A check connects to its server when it is first called.
 * Embedded engines are already up at that point.
 */
async function openServerProbes(
  config: Config,
  { clickhouse, database }: Stores,
  logger: Logger,
): Promise<{ readonly healthChecks: readonly HealthCheck[]; close(): Promise<void> }> {
  const { kafkaBrokers, redisUrl } = config;
  const kafka =
    kafkaBrokers === undefined
      ? undefined
      : (await import('../../infra/event-log/kafka/health.ts')).openKafkaProbe(config, logger);
  const redis = redisUrl === undefined ? undefined : (await import('../../infra/jobs/redis-backend.ts')).queryRedis;
  return {
    healthChecks: [
      { name: 'postgres', check: () => database.ping() },
      { name: 'clickhouse', check: () => clickhouse.ping() },
      ...(kafka?.healthChecks ?? []),
      ...(redis ? [{ name: 'redis', check: () => redis(redisUrl as string, readTrustedAuthorities(config)) }] : []),
    ],
    close: async () => kafka?.close(),
  };
}

/**
 * Waits for servers. Resolves when all servers have responded in the same round, or when `signal` is aborted.
 *
 * @param onWaiting receives the names of the unavailable servers after each round.
 * @throws the first error that does not mean that a server is unavailable.
 */
async function waitForServers(
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
    const unavailableServers = (await Promise.all(checks.map(probeServer))).filter((each) => each !== undefined);
    if (signal.aborted) return;
    onWaiting(unavailableServers.map(({ name }) => name));
    for (const { name, err } of unavailableServers) {
      if (performance.now() - (loggedAtMs.get(name) ?? Number.NEGATIVE_INFINITY) < logIntervalMs) continue;
      loggedAtMs.set(name, performance.now());
      logger.warn({ server: name, err, remedy: err.remedy }, 'waiting for a server');
    }
    for (const name of loggedAtMs.keys()) {
      if (unavailableServers.some((each) => each.name === name)) continue;
      loggedAtMs.delete(name);
      logger.info({ server: name }, 'server answers');
    }
    if (unavailableServers.length === 0) return;
    await pause(computeBackoffMs(round, firstPauseMs, maxPauseMs), signal);
  }
}

/** Checks one server. @returns undefined if the server responds. */
async function probeServer({ name, check }: HealthCheck): Promise<{ name: string; err: RunlakeError } | undefined> {
  const checkPromise = check();
  try {
    if (!(await settlesBeforeTimeout(checkPromise, probeTimeoutMs)))
      throw runlakeError('PART_SILENT', { part: name, limitMs: probeTimeoutMs });
    await checkPromise;
    return undefined;
  } catch (err) {
    if (!isUnavailable(err)) throw err;
    return { name, err };
  }
}
