/**
 * Moves a claimed revision through its states.
 *
 * Invariant: the state is only in the row. Each step may be repeated: after a crash, another claim continues with the
 * status that the row has.
 *
 *   1. CREATING: open the secrets, check the source.
 *   2. QUEUED: choose whether to build.
 *   3. AWAITING_BUILD, BUILDING: build (`build/`), within the build slots of the host.
 *   4. AWAITING_DEPLOY: add the rows of the replicas, which hosts then start (`run-replica.ts`).
 *   5. DEPLOYING: wait until all replicas answer, then make the revision the active one. From then on the replicas of
 *      the previous revision are no longer wanted.
 */
import type { Config } from '../../infra/config/settings.ts';
import { formatWithRemedy, isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../infra/postgres/database.ts';
import type { Sealer } from '../../infra/sealing/sealer.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { counter } from '../../infra/telemetry/metrics.ts';
import { pause } from '../../infra/timeouts/backoff.ts';
import type { Builder } from './build/build-source.ts';
import { checkDeployment, isBuildable } from './check-source.ts';
import type { ClaimedRevision } from './claim-revision.ts';
import { gitTokenName, openRevisionSecrets } from './deployment-secrets.ts';
import { addReplicas, countReplicas, readProgress } from './replicas.ts';
import { openRevisionLog, readLastLines } from './revision-logs.ts';
import { changeStatus, isFinal, type RevisionStatus } from './states.ts';

const endedRevisions = counter(
  'runlake_deployment_revisions_total',
  'Revisions that ended in this process, by status.',
  ['status'],
);

export interface AdvanceDeps {
  readonly database: Database;
  readonly logger: Logger;
  readonly secretSealer: Sealer;
  readonly builder: Builder;
  readonly config: Pick<
    Config,
    'deploymentsDriver' | 'deploymentsStartTimeoutMs' | 'deploymentsBuildTimeoutMs' | 'deploymentsTickMs'
  >;
}

/** Number of claims in one status after which the revision fails. */
const maxAttempts = 3;
const progressIntervalMs = 100;
/** Lines of the log that the reason of a failure contains. */
export const shownLogLines = 20;

interface Step {
  readonly to: RevisionStatus;
  readonly reason: string;
  /** Changes that are committed together with the status. */
  readonly also?: (tx: Sql) => Promise<void>;
}

/**
 * Advances a revision until it is final, or until it needs something that this host does not have.
 *
 * @param options `takeBuildSlot` returns whether a slot is free, and takes it until the call ends.
 * @throws the reason of the signal; errors of the database. The caller then releases the claim.
 */
export async function advanceRevision(
  deps: AdvanceDeps,
  claimed: ClaimedRevision,
  { signal, takeBuildSlot }: { readonly signal: AbortSignal; readonly takeBuildSlot: () => boolean },
): Promise<void> {
  const { database, logger } = deps;
  let revision = claimed;
  while (!isFinal(revision.status)) {
    signal.throwIfAborted();
    // `claimRevision` chooses which revision is built next.
    if (needsBuildSlot(revision.status) && !(needsBuildSlot(claimed.status) && takeBuildSlot())) return;
    const step = await takeStep(deps, revision, signal);
    const from = revision.status;
    const changed = await database.transaction(async (tx) => {
      // Revisions of a deployment change one after the other, because they decide together which one is active.
      await tx.query('SELECT FROM deployments WHERE id = $1 FOR UPDATE', [revision.deploymentId]);
      const isChanged = await changeStatus(tx, revision, { from, ...step });
      if (isChanged) await step.also?.(tx);
      if (isChanged) await tx.execute("SELECT pg_notify('deployments', $1)", [revision.deploymentId]);
      return isChanged;
    });
    if (!changed) return;
    logger.info(
      { revisionId: revision.revisionId, from, to: step.to, reason: step.reason },
      'revision changed its status',
    );
    if (isFinal(step.to)) endedRevisions.inc({ status: step.to });
    revision = { ...revision, status: step.to, attempts: 1 };
  }
}

function needsBuildSlot(status: RevisionStatus): boolean {
  return status === 'AWAITING_BUILD' || status === 'BUILDING';
}

async function takeStep(deps: AdvanceDeps, revision: ClaimedRevision, signal: AbortSignal): Promise<Step> {
  switch (revision.status) {
    case 'CREATING':
      return create(deps, revision);
    case 'QUEUED':
      return isBuildable(revision.source)
        ? { to: 'AWAITING_BUILD', reason: 'It has a source to build.' }
        : { to: 'AWAITING_DEPLOY', reason: 'It is an image.' };
    case 'AWAITING_BUILD':
      return { to: 'BUILDING', reason: 'A host has a free build slot.' };
    case 'BUILDING':
      return build(deps, revision, signal);
    case 'AWAITING_DEPLOY':
      return startReplicas(revision);
    case 'DEPLOYING':
      return awaitReplicas(deps, revision, signal);
    default:
      throw runlakeError('INTERNAL', {}, { cause: `a revision in the status ${revision.status} has no next step` });
  }
}

function create({ secretSealer, config }: AdvanceDeps, revision: ClaimedRevision): Step {
  try {
    openRevisionSecrets(secretSealer, revision);
    checkDeployment(revision, config.deploymentsDriver);
    return { to: 'QUEUED', reason: 'Its source and its secrets can be used.' };
  } catch (error) {
    if (!isRunlakeError(error)) throw error;
    return { to: 'CREATE_FAILED', reason: formatWithRemedy(error) };
  }
}

async function build(deps: AdvanceDeps, revision: ClaimedRevision, signal: AbortSignal): Promise<Step> {
  const { revisionId, deploymentId, attempts } = revision;
  if (attempts > maxAttempts) {
    return {
      to: 'BUILD_FAILED',
      reason: `Its build did not end in ${maxAttempts} attempts: the process was killed, or its result could not be stored.`,
    };
  }
  const secrets = openRevisionSecrets(deps.secretSealer, revision);
  const log = openRevisionLog(deps, { revisionId, stage: 'build', values: Object.values(secrets) });
  try {
    const gitToken = secrets[gitTokenName];
    const { commit } = await deps.builder.build(
      { ...revision, gitToken },
      { signal, onLog: (text) => log.write(text) },
    );
    return {
      to: 'AWAITING_DEPLOY',
      reason: commit === undefined ? 'The build succeeded.' : `The build of commit ${commit} succeeded.`,
      also: async (tx) => {
        if (commit !== undefined) await recordCommit(tx, deploymentId, revisionId, commit);
      },
    };
  } catch (error) {
    signal.throwIfAborted();
    if (!isRunlakeError(error) || error.class !== 'caller') throw error;
    const reason = addTail(log.mask(formatWithRemedy(error)), log.tail(shownLogLines));
    log.write(formatWithRemedy(error));
    return { to: 'BUILD_FAILED', reason };
  } finally {
    await log.flush();
  }
}

async function recordCommit(tx: Sql, deploymentId: string, revisionId: string, commit: string): Promise<void> {
  const assign = `source_revision_config = (source_revision_config::jsonb || jsonb_build_object('repo_commit_sha', $2::text))::json`;
  await tx.execute(`UPDATE deployment_revisions SET ${assign} WHERE id = $1`, [revisionId, commit]);
  await tx.execute(`UPDATE deployments SET ${assign} WHERE id = $1 AND latest_revision_id = $3`, [
    deploymentId,
    commit,
    revisionId,
  ]);
}

function startReplicas({ deploymentId, revisionId, sourceConfig }: ClaimedRevision): Step {
  const count = countReplicas(sourceConfig);
  return {
    to: 'DEPLOYING',
    reason: count === 1 ? 'A replica starts.' : `${count} replicas start.`,
    also: (tx) => addReplicas(tx, { deploymentId, revisionId, count }),
  };
}

async function awaitReplicas(deps: AdvanceDeps, revision: ClaimedRevision, signal: AbortSignal): Promise<Step> {
  const { database, config } = deps;
  const { revisionId, deploymentId, source } = revision;
  // A host that starts a replica and did not build the revision builds it first.
  const limitMs = config.deploymentsStartTimeoutMs + (isBuildable(source) ? config.deploymentsBuildTimeoutMs : 0);
  for (;;) {
    const progress = await readProgress(database, revisionId);
    if (progress.total > 0 && progress.answering === progress.total) {
      return {
        to: 'DEPLOYED',
        reason: 'All its replicas answer.',
        also: async (tx) => {
          await tx.execute(
            `UPDATE deployments SET active_revision_id = $2, is_asleep = false, last_used_at = now(), updated_at = now()
             WHERE id = $1`,
            [deploymentId, revisionId],
          );
          // The new replicas execute the runs from now on.
          await tx.execute("SELECT pg_notify('agent_runs', $1)", [deploymentId]);
        },
      };
    }
    if (progress.failures > 0) {
      return { to: 'DEPLOY_FAILED', reason: progress.lastError ?? 'A replica could not be started.' };
    }
    const [waiting] = await database.query<{ isLate: boolean }>(
      `SELECT status_changed_at < clock_timestamp() - make_interval(secs => $2) AS "isLate"
       FROM deployment_revisions WHERE id = $1`,
      [revisionId, limitMs / 1_000],
    );
    if (waiting?.isLate !== false) {
      const lines = await readLastLines(database, revisionId, shownLogLines);
      return { to: 'DEPLOY_FAILED', reason: addTail(`Its replicas did not answer within ${limitMs} ms.`, lines) };
    }
    await pause(progressIntervalMs, signal);
    signal.throwIfAborted();
  }
}

/** Adds the last lines of the log to the reason of a failure, except those that it contains already. */
export function addTail(reason: string, tail: string): string {
  const lines = tail.split('\n').filter((line) => !reason.includes(line));
  return [reason, ...lines].join('\n');
}
