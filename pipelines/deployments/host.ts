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
import { startRepeating } from '../../infra/timeouts/repeat.ts';
import { type AdvanceDeps, advanceRevision } from './advance-revision.ts';
import { type ClaimedRevision, claimRevision, releaseRevision, renewRevisions } from './claim-revision.ts';
import { createDeletions, type DeletionDeps } from './delete-deployment.ts';
import {
  claimReplicas,
  deleteUnwantedReplicas,
  freeAllLeases,
  readNeededFolders,
  readNeededReplicas,
  reconcileSleep,
  renewReplicas,
} from './replicas.ts';
import { type ReplicaDeps, type RunningReplica, runReplica } from './run-replica.ts';
import { deleteUnusedUploads } from './uploads.ts';

export interface HostDeps extends AdvanceDeps, ReplicaDeps, DeletionDeps {
  readonly config: AdvanceDeps['config'] &
    ReplicaDeps['config'] &
    DeletionDeps['config'] &
    Pick<Config, 'deploymentsLeaseMs' | 'deploymentsBuildsAtOnce' | 'deploymentsSleepMinutes'>;
}

export interface Host {
  /** Looks for work. Call it on NOTIFY deployments. */
  wake(): void;
  stop(): Promise<void>;
}

const cleanUpIntervalMs = 60_000;
/** Maximum number of replicas per claim; the rest is left to other hosts. */
const replicasPerClaim = 4;

/** @param options `isOnlyHost`: no other process can be a host, so leases of killed processes are void. */
export async function startHost(deps: HostDeps, { isOnlyHost }: { readonly isOnlyHost: boolean }): Promise<Host> {
  const { database, logger, config, builder, driver } = deps;
  const lease = { hostId: randomUUID(), leaseMs: config.deploymentsLeaseMs };
  const revisions = new Map<
    string,
    { readonly fence: number; readonly lost: AbortController; readonly done: Promise<void> }
  >();
  const replicas = new Map<string, RunningReplica>();
  let buildSlots = config.deploymentsBuildsAtOnce;
  const stopping = new AbortController();
  const deletions = createDeletions(deps, stopping.signal);
  const logCleanUpFailure = (err: unknown) => logger.warn({ err }, 'host of deployments could not clean up; retrying');
  if (isOnlyHost) await freeAllLeases(database);

  function startRevision(claim: ClaimedRevision): void {
    const lost = new AbortController();
    // The claim may have returned after `stop` was called.
    const signal = AbortSignal.any([lost.signal, stopping.signal]);
    let hasSlot = false;
    const takeBuildSlot = () => {
      if (hasSlot) return true;
      if (buildSlots === 0) return false;
      buildSlots -= 1;
      hasSlot = true;
      return true;
    };
    const advance = async () => {
      let isAttempt = false;
      try {
        await advanceRevision(deps, claim, { signal, takeBuildSlot });
      } catch (err) {
        if (!signal.aborted) {
          isAttempt = isRefusedStatement(err);
          logger.warn({ err, revisionId: claim.revisionId }, 'revision could not be advanced; retrying');
          await pause(config.deploymentsTickMs, stopping.signal);
        }
      } finally {
        if (hasSlot) buildSlots += 1;
        await releaseRevision(database, claim, { isAttempt }).catch((err: unknown) =>
          logger.warn({ err, revisionId: claim.revisionId }, 'revision not released; its lease expires'),
        );
        // Only now, because `stop` waits for the revisions in the map. The host may have claimed this one again.
        if (revisions.get(claim.revisionId)?.fence === claim.fence) revisions.delete(claim.revisionId);
        search.wake();
      }
    };
    revisions.set(claim.revisionId, { fence: claim.fence, lost, done: advance() });
  }

  async function claimWork(): Promise<void> {
    for (;;) {
      if (stopping.signal.aborted) return;
      const claim = await claimRevision(database, lease, { canBuild: buildSlots > 0 });
      if (claim === undefined) break;
      startRevision(claim);
    }
    for (const claim of await claimReplicas(database, lease, replicasPerClaim)) {
      const key = `${claim.revisionId} ${claim.number} ${claim.fence}`;
      const replica = runReplica(deps, claim);
      replicas.set(key, replica);
      void replica.done.then(() => {
        replicas.delete(key);
        search.wake();
      });
    }
    await deletions.start();
    await reconcileSleep(database, config.deploymentsSleepMinutes);
  }

  /** Deletes what no revision needs any more: rows of replicas, builds, abandoned replicas, uploads. Never rejects. */
  async function cleanUp(): Promise<void> {
    const steps = [
      () => deleteUnwantedReplicas(database),
      () => builder.deleteExcept(() => readNeededFolders(database)),
      () => driver.removeAbandoned?.(() => readNeededReplicas(database), stopping.signal),
      () => deleteUnusedUploads(deps),
    ];
    for (const step of steps) {
      if (stopping.signal.aborted) return;
      await Promise.resolve(step()).catch(logCleanUpFailure);
    }
  }

  async function renew(): Promise<void> {
    // Claims that are made during the renewal are missing in its result.
    const [ownRevisions, ownReplicas] = [[...revisions], [...replicas]];
    const claims = ownRevisions.map(([revisionId, { fence }]) => ({ revisionId, fence }));
    const renewed = await renewRevisions(database, lease, claims);
    const heldRevisions = new Map(renewed.map((held) => [held.revisionId, held.fence]));
    for (const [revisionId, { fence, lost }] of ownRevisions) {
      if (heldRevisions.get(revisionId) !== fence) lost.abort(runlakeError('REVISION_TAKEN_OVER'));
    }
    const replicaClaims = ownReplicas.map(([, { claim }]) => claim);
    const held = new Map(
      (await renewReplicas(database, lease, replicaClaims)).map((each) => [
        `${each.revisionId} ${each.number} ${each.fence}`,
        each,
      ]),
    );
    for (const [key, replica] of ownReplicas) {
      const row = held.get(key);
      if (row === undefined) replica.stop('lost');
      else if (!row.isWanted) replica.stop('unwanted');
    }
  }

  const search = startRepeating(claimWork, {
    maxPauseMs: config.deploymentsTickMs,
    onFailure: (err) => logger.warn({ err }, 'host of deployments could not look for work; retrying'),
  });
  const renewals = startRepeating(renew, {
    maxPauseMs: Math.min(config.deploymentsLeaseMs / 3, config.deploymentsTickMs),
    onFailure: (err) => logger.warn({ err }, 'leases of deployments not renewed; retrying'),
  });
  const cleanUps = startRepeating(cleanUp, { maxPauseMs: cleanUpIntervalMs, onFailure: logCleanUpFailure });

  return {
    wake: search.wake,
    async stop() {
      stopping.abort(runlakeError('DRAINING'));
      await search.stop();
      for (const replica of replicas.values()) replica.stop('shutdown');
      await Promise.all([
        ...[...revisions.values()].map(({ done }) => done),
        ...[...replicas.values()].map(({ done }) => done),
      ]);
      await renewals.stop();
      await Promise.all([deletions.settle(), cleanUps.stop()]);
      await builder.close();
    },
  };
}
