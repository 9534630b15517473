/**
 * Runs one replica on this host, from its claim to its end.
 *
 *   1. Build the revision, if this host does not have its build.
 *   2. Start the replica with the driver; record its address when it answers.
 *   3. Check it periodically. If it ends by itself or does not respond any more, record that; it becomes due again
 *      after a delay that doubles with each failure.
 *   4. When the replica is no longer wanted, let it accept requests for some seconds, because proxies still have its
 *      address; then drain and release it. If it cannot be stopped, it stays claimed and is stopped again after a delay, so
 *      that its deployment is not deleted before.
 *   5. When the host shuts down or has lost the lease, leave a replica that outlives its host to the host that takes it
 *      over (`StartedReplica.detach`). Drain any other at a shutdown, as in step 4 if another host takes over, and end it
 *      at once if the lease was lost.
 */
import type { Config } from '../../infra/config/settings.ts';
import { formatWithRemedy, isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { Sealer } from '../../infra/sealing/sealer.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { counter } from '../../infra/telemetry/metrics.ts';
import { computeBackoffMs, pause } from '../../infra/timeouts/backoff.ts';
import { addTail, shownLogLines } from './advance-revision.ts';
import type { Builder } from './build/build-source.ts';
import { isBuildable } from './check-source.ts';
import { gitTokenName, openRevisionSecrets } from './deployment-secrets.ts';
import type { DeploymentDriver, ReplicaSpec, StartedReplica, StartOptions } from './driver.ts';
import { type ClaimedReplica, recordEnded, recordStarted, recordStopping, releaseReplica } from './replicas.ts';
import { openRevisionLog } from './revision-logs.ts';

const startedReplicas = counter('runlake_deployment_replica_starts_total', 'Replicas that this process started.', []);
const endedReplicas = counter(
  'runlake_deployment_replica_ends_total',
  'Replicas of this process that ended by themselves, did not respond, or could not be started.',
  [],
);

export interface ReplicaDeps {
  readonly database: Database;
  readonly logger: Logger;
  readonly secretSealer: Sealer;
  readonly builder: Builder;
  readonly driver: DeploymentDriver;
  readonly config: Pick<
    Config,
    'drainTimeoutMs' | 'deploymentsRestartDelayMs' | 'deploymentsSwitchMs' | 'deploymentsStartTimeoutMs'
  >;
}

/**
 * How a replica is stopped. One that does not outlive its host drains after the switch if it is `unwanted`, and at a
 * `handover`: until then it creates runs for proxies that have its address, and no run that only the next host could execute.
 * At a `shutdown` without another host it drains at once, and does not drain if it is `lost`.
 */
export type StopReason = 'unwanted' | 'handover' | 'shutdown' | 'lost';

/** A replica that this host runs. */
export interface RunningReplica {
  readonly claim: ClaimedReplica;
  stop(reason: StopReason): void;
  /** Resolves when the replica has ended and its row is written. Never rejects. */
  readonly done: Promise<void>;
}

const healthIntervalMs = 5_000;
const healthTimeoutMs = 5_000;
const maxFailedChecks = 3;
const maxRestartDelayMs = 60_000;

export function runReplica(deps: ReplicaDeps, claim: ClaimedReplica): RunningReplica {
  const stopped = new AbortController();
  const starting = new AbortController();
  const leaving = new AbortController();
  let stopReason: StopReason | undefined;
  return {
    claim,
    stop(reason) {
      // An unwanted replica is not left to another host, which would not want it either.
      if (stopReason === undefined || reason === 'lost') stopReason = reason;
      starting.abort(runlakeError(reason === 'unwanted' ? 'DRAINING' : 'REVISION_TAKEN_OVER'));
      stopped.abort();
      if (reason !== 'unwanted') leaving.abort();
    },
    done: run(deps, claim, {
      starting: starting.signal,
      stopped: stopped.signal,
      leaving: leaving.signal,
      getStopReason: () => stopReason,
    }).catch((err: unknown) =>
      deps.logger.error({ err, revisionId: claim.revisionId }, 'replica could not be recorded; its lease expires'),
    ),
  };
}

interface Stopping {
  readonly starting: AbortSignal;
  readonly stopped: AbortSignal;
  /** Aborted by all reasons but `unwanted`, after which the replica is the concern of another host. */
  readonly leaving: AbortSignal;
  readonly getStopReason: () => StopReason | undefined;
}

async function run(deps: ReplicaDeps, claim: ClaimedReplica, stopping: Stopping): Promise<void> {
  const { database, logger, config } = deps;
  const { revisionId, number } = claim;
  const fields = { deploymentId: claim.deploymentId, revisionId, number };
  let replica: StartedReplica | undefined;
  let failure: string;
  let isOwnFailure = true;
  let hasAnswered = false;
  let log: ReturnType<typeof openRevisionLog> | undefined;
  try {
    const secrets = openRevisionSecrets(deps.secretSealer, claim);
    log = openRevisionLog(deps, { revisionId, stage: 'run', values: Object.values(secrets) });
    const onLog = (text: string) => log?.write(text);
    const spec = await buildSpec(deps, claim, secrets, stopping.starting, onLog);
    replica = await startInTime(deps, spec, { signal: stopping.starting, onLog });
    if (!(await recordStarted(database, claim, replica.url))) {
      await leave(replica);
      return;
    }
    hasAnswered = true;
    startedReplicas.inc();
    logger.info({ ...fields, url: replica.url }, 'replica answers');
    failure = await watch(replica, stopping.stopped);
  } catch (error) {
    if (stopping.getStopReason() === undefined) {
      isOwnFailure = isRunlakeError(error) && error.class === 'caller';
      if (!isOwnFailure) logger.warn({ err: error, ...fields }, 'replica could not be started');
      failure = isRunlakeError(error) ? formatWithRemedy(error) : 'Internal error.';
    } else failure = '';
  }
  const reason = stopping.getStopReason();
  if (reason !== undefined) {
    if (replica && (reason === 'unwanted' || (reason === 'handover' && !replica.detach))) {
      await recordStopping(database, claim).catch((err: unknown) =>
        logger.warn({ err, ...fields }, 'replica may still be found while it stops'),
      );
      await pause(config.deploymentsSwitchMs);
    }
    await stopOrLeave(deps, replica, stopping, fields);
    await log?.flush();
    await releaseReplica(database, claim);
    logger.info({ ...fields, reason }, 'replica stopped');
    return;
  }
  endedReplicas.inc();
  failure = log?.mask(failure) ?? failure;
  // What is left of it is removed when it starts again, or by `removeAbandoned`.
  await endFailed(deps, claim, replica, isOwnFailure).catch((err: unknown) =>
    logger.warn({ err, ...fields }, 'ended replica not removed'),
  );
  const tail = log?.tail(shownLogLines) ?? '';
  log?.write(`The replica ended: ${failure}`);
  await log?.flush();
  logger.warn({ ...fields, reason: failure }, 'replica ended; it is started again');
  await recordEnded(database, claim, {
    reason: addTail(failure, tail),
    isOwnFailure,
    hasAnswered,
    computeDelayMs: (failures) => computeBackoffMs(failures - 1, config.deploymentsRestartDelayMs, maxRestartDelayMs),
  });
}

/** Ends a replica that failed, or leaves it to its next start if this host failed. */
async function endFailed(
  { database, config }: ReplicaDeps,
  claim: ClaimedReplica,
  replica: StartedReplica | undefined,
  isOwnFailure: boolean,
): Promise<void> {
  if (!isOwnFailure || !replica?.detach) return leave(replica);
  // One that outlives hosts may be at work although it does not respond to this host. It gets no more requests.
  await recordStopping(database, claim);
  await replica.stop(config.drainTimeoutMs);
}

/**
 * Stops a replica, again with backoff until it succeeds. Never rejects: a host that shuts down leaves a replica that it
 * cannot stop to `removeAbandoned`, and one whose lease is lost to the host that has it.
 */
async function stopOrLeave(
  { logger, config }: ReplicaDeps,
  replica: StartedReplica | undefined,
  { leaving, getStopReason }: Stopping,
  fields: object,
): Promise<void> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      // A shutdown or a lost lease may follow while the replica drains.
      const reason = getStopReason();
      if (reason === 'lost' || (reason !== 'unwanted' && replica?.detach)) await leave(replica);
      else await replica?.stop(config.drainTimeoutMs);
      return;
    } catch (err) {
      logger.warn({ err, ...fields }, 'replica could not be stopped; retrying');
      if (leaving.aborted) return;
      await pause(computeBackoffMs(attempt, config.deploymentsRestartDelayMs, maxRestartDelayMs), leaving);
    }
  }
}

/** @throws DEPLOYMENT_START_FAILED if the replica does not answer in time; the errors of the driver */
async function startInTime(
  { driver, config }: ReplicaDeps,
  spec: ReplicaSpec,
  { signal, onLog }: StartOptions,
): Promise<StartedReplica> {
  const { deploymentsStartTimeoutMs: timeoutMs } = config;
  const late = new AbortController();
  const abort = () =>
    late.abort(runlakeError('DEPLOYMENT_START_FAILED', { reason: `It did not answer within ${timeoutMs} ms` }));
  const timer = setTimeout(abort, timeoutMs);
  try {
    return await driver.start(spec, { signal: AbortSignal.any([signal, late.signal]), onLog });
  } finally {
    clearTimeout(timer);
  }
}

/** Ends the work of this host for a replica that another host takes over. */
async function leave(replica: StartedReplica | undefined): Promise<void> {
  if (replica?.detach) replica.detach();
  else await replica?.stop(0);
}

async function buildSpec(
  { builder }: ReplicaDeps,
  claim: ClaimedReplica,
  environment: Readonly<Record<string, string>>,
  signal: AbortSignal,
  onLog: (text: string) => void,
): Promise<ReplicaSpec> {
  const { deploymentId, revisionId, name, slug, number, source, secretReferences } = claim;
  const built = isBuildable(source)
    ? await builder.build({ ...claim, gitToken: environment[gitTokenName] }, { signal, onLog })
    : undefined;
  const imageUri = claim.sourceRevisionConfig.image_uri;
  return {
    ...{ deploymentId, revisionId, name, slug, number, environment, secretReferences },
    ...(built && { agentsFile: built.agentsFile }),
    ...(!built && imageUri && { imageUri }),
    resources: claim.sourceConfig.resource_spec ?? {},
  };
}

/** Waits until the replica ends, does not respond, or is to be stopped. @returns why it ended; '' if it is to be stopped. */
async function watch(replica: StartedReplica, stopped: AbortSignal): Promise<string> {
  const finished = new AbortController();
  const signal = AbortSignal.any([stopped, finished.signal]);
  let reason = '';
  void replica.ended.then((text) => {
    reason = text;
    finished.abort();
  });
  for (let failed = 0; !signal.aborted && failed < maxFailedChecks; ) {
    await pause(healthIntervalMs, signal);
    if (signal.aborted) break;
    const isHealthy = await replica.isHealthy(AbortSignal.any([signal, AbortSignal.timeout(healthTimeoutMs)]));
    failed = isHealthy ? 0 : failed + 1;
    if (failed === maxFailedChecks) reason = `It did not respond to ${maxFailedChecks} health checks.`;
  }
  return stopped.aborted ? '' : reason;
}
