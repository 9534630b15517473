/**
 * A host: builds revisions and runs replicas. Any number of hosts share the work.
 *
 * Invariant: a host works on a revision or a replica only while it has its lease. It renews all its leases together,
 * three times in the duration of a lease, apart from its other work.
 *
 *   1. A notification of Postgres, or a tick, makes the host look for work: unfinished revisions (`advance-revision.ts`),
 *      wanted replicas (`run-replica.ts`), and deployments to delete (`delete-deployment.ts`). It waits for none of them,
 *      so that what fails or hangs for one deployment does not block the others.
 *   2. The renewal returns what the host still holds. It ends its work on everything else, and stops replicas that are
 *      no longer wanted.
 *   3. After a SIGKILL the leases expire, and this or another host continues with the rows as they are.
 *   4. `stop` drains the replicas, except those that outlive their host, and releases everything, so that another host
 *      continues at once. Leases are renewed until then, because draining may take longer than a lease.
 */
import { randomUUID } from 'node:crypto';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { isRefusedStatement } from '../../infra/postgres/database-error.ts';
import { pause } from '../../infra/timeouts/backoff.ts';
import { type Repeater, startRepeating } from '../../infra/timeouts/repeat.ts';
import { type AdvanceDeps, advanceRevision } from './advance-revision.ts';
import { type ClaimedRevision, claimRevision, releaseRevision, renewRevisions } from './claim-revision.ts';
import { createDeletions, type DeletionDeps, type Deletions } from './delete-deployment.ts';
import {
  claimReplicas,
  deleteUnwantedReplicas,
  freeAllLeases,
  type HostLease,
  readNeededFolders,
  readNeededReplicas,
  reconcileSleep,
  renewReplicas,
} from './replicas.ts';
import { type ReplicaDeps, type RunningReplica, runReplica, type StopReason } from './run-replica.ts';
import type { RevisionClaim } from './states.ts';
import { deleteUnusedUploads } from './uploads.ts';

export interface HostDeps extends AdvanceDeps, ReplicaDeps, DeletionDeps {
  readonly config: AdvanceDeps['config'] &
    ReplicaDeps['config'] &
    DeletionDeps['config'] &
    Pick<Config, 'deploymentsLeaseMs' | 'deploymentsBuildsAtOnce' | 'deploymentsSleepMinutes'>;
}

/** A revision that this host works on. */
interface RevisionInProgress {
  readonly claim: RevisionClaim;
  readonly lost: AbortController;
  readonly done: Promise<void>;
}

const cleanUpIntervalMs = 60_000;
/** Maximum number of replicas per claim; the rest is left to other hosts. */
const replicasPerClaim = 4;
const cleanUpFailure = 'host of deployments could not clean up; retrying';

/** @param options `isOnlyHost`: no other process can be a host, so leases of killed processes are void. */
export async function startHost(deps: HostDeps, { isOnlyHost }: { readonly isOnlyHost: boolean }): Promise<Host> {
  if (isOnlyHost) await freeAllLeases(deps.database);
  return new Host(deps, isOnlyHost ? 'shutdown' : 'handover');
}

export class Host {
  readonly #deps: HostDeps;
  readonly #stopReason: StopReason;
  readonly #lease: HostLease;
  readonly #revisions = new Set<RevisionInProgress>();
  readonly #replicas = new Set<RunningReplica>();
  readonly #stopping = new AbortController();
  readonly #deletions: Deletions;
  readonly #search: Repeater;
  readonly #renewals: Repeater;
  readonly #cleanUps: Repeater;
  #buildSlots: number;

  constructor(deps: HostDeps, stopReason: StopReason) {
    const { config, logger } = deps;
    this.#deps = deps;
    this.#stopReason = stopReason;
    this.#lease = { hostId: randomUUID(), leaseMs: config.deploymentsLeaseMs };
    this.#deletions = createDeletions(deps, this.#stopping.signal);
    this.#buildSlots = config.deploymentsBuildsAtOnce;
    const repeat = (work: () => Promise<void>, maxPauseMs: number, failure: string) =>
      startRepeating(work, { maxPauseMs, onFailure: (err) => logger.warn({ err }, failure) });
    const tickMs = config.deploymentsTickMs;
    const renewMs = Math.min(config.deploymentsLeaseMs / 3, tickMs);
    this.#search = repeat(() => this.#claimWork(), tickMs, 'host of deployments could not look for work; retrying');
    this.#renewals = repeat(() => this.#renew(), renewMs, 'leases of deployments not renewed; retrying');
    this.#cleanUps = repeat(() => this.#cleanUp(), cleanUpIntervalMs, cleanUpFailure);
  }

  /** Looks for work. Call it on NOTIFY deployments. */
  wake(): void {
    this.#search.wake();
  }

  async stop(): Promise<void> {
    this.#stopping.abort(runlakeError('DRAINING'));
    await this.#search.stop();
    for (const replica of this.#replicas) replica.stop(this.#stopReason);
    await Promise.all([...this.#revisions, ...this.#replicas].map(({ done }) => done));
    await this.#renewals.stop();
    await Promise.all([this.#deletions.settle(), this.#cleanUps.stop()]);
    await this.#deps.builder.close();
  }

  async #claimWork(): Promise<void> {
    const { database, config } = this.#deps;
    for (;;) {
      if (this.#stopping.signal.aborted) return;
      const claim = await claimRevision(database, this.#lease, { canBuild: this.#buildSlots > 0 });
      if (claim === undefined) break;
      this.#startRevision(claim);
    }
    for (const claim of await claimReplicas(database, this.#lease, replicasPerClaim)) {
      const replica = runReplica(this.#deps, claim);
      this.#replicas.add(replica);
      void replica.done.then(() => {
        this.#replicas.delete(replica);
        this.#search.wake();
      });
    }
    await this.#deletions.start();
    await reconcileSleep(database, config.deploymentsSleepMinutes);
  }

  #startRevision(claim: ClaimedRevision): void {
    const lost = new AbortController();
    // The claim may have returned after `stop` was called.
    const signal = AbortSignal.any([lost.signal, this.#stopping.signal]);
    const done = this.#advance(claim, signal).finally(() => {
      this.#revisions.delete(revision);
      this.#search.wake();
    });
    const revision = { claim, lost, done };
    this.#revisions.add(revision);
  }

  async #advance(claim: ClaimedRevision, signal: AbortSignal): Promise<void> {
    const { database, logger, config } = this.#deps;
    const { revisionId } = claim;
    let isAttempt = false;
    let hasSlot = false;
    const takeBuildSlot = () => {
      if (hasSlot || this.#buildSlots === 0) return hasSlot;
      this.#buildSlots -= 1;
      hasSlot = true;
      return true;
    };
    try {
      await advanceRevision(this.#deps, claim, { signal, takeBuildSlot });
    } catch (err) {
      if (signal.aborted) return;
      isAttempt = isRefusedStatement(err);
      logger.warn({ err, revisionId }, 'revision could not be advanced; retrying');
      await pause(config.deploymentsTickMs, this.#stopping.signal);
    } finally {
      if (hasSlot) this.#buildSlots += 1;
      await releaseRevision(database, claim, { isAttempt }).catch((err: unknown) =>
        logger.warn({ err, revisionId }, 'revision not released; its lease expires'),
      );
    }
  }

  async #renew(): Promise<void> {
    const { database } = this.#deps;
    // Claims that are made during the renewal are missing in its result.
    const [revisions, replicas] = [[...this.#revisions], [...this.#replicas]];
    const renewedRevisions = await renewRevisions(database, this.#lease, revisions.map(getClaim));
    const heldRevisions = new Set(renewedRevisions.map(formatClaimKey));
    for (const { claim, lost } of revisions) {
      if (!heldRevisions.has(formatClaimKey(claim))) lost.abort(runlakeError('REVISION_TAKEN_OVER'));
    }
    const renewedReplicas = await renewReplicas(database, this.#lease, replicas.map(getClaim));
    const heldReplicas = new Map(renewedReplicas.map((held) => [formatClaimKey(held), held]));
    for (const replica of replicas) {
      const held = heldReplicas.get(formatClaimKey(replica.claim));
      if (held === undefined) replica.stop('lost');
      else if (!held.isWanted) replica.stop('unwanted');
    }
  }

  /** Deletes what no revision needs any more: rows of replicas, builds, abandoned replicas, uploads. Never rejects. */
  async #cleanUp(): Promise<void> {
    const { database, logger, builder, driver } = this.#deps;
    const { signal } = this.#stopping;
    const steps = [
      () => deleteUnwantedReplicas(database),
      () => builder.deleteExcept(() => readNeededFolders(database)),
      () => driver.removeAbandoned?.(() => readNeededReplicas(database), signal),
      () => deleteUnusedUploads(this.#deps),
    ];
    for (const step of steps) {
      if (signal.aborted) return;
      await Promise.resolve(step()).catch((err: unknown) => logger.warn({ err }, cleanUpFailure));
    }
  }
}

const getClaim = <Claim>({ claim }: { readonly claim: Claim }) => claim;

const formatClaimKey = ({ revisionId, number = 0, fence }: RevisionClaim & { readonly number?: number }) =>
  `${revisionId} ${number} ${fence}`;
