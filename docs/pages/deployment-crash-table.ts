import { type CrashRow, proofs } from './crash-table.ts';

const crashes = proofs('test/crash/deployments.test.ts');
const crashesInUpdates = proofs('test/crash/deployment-updates.test.ts');
const deletions = proofs('test/pipelines/deployments/deletions.test.ts');
const hosts = proofs('test/pipelines/deployments/host.test.ts');

/** Deployments: their rows in Postgres are authoritative; leases decide which host builds a revision or runs a replica. */
export const deploymentRows: readonly CrashRow[] = [
  {
    where: 'runlake all',
    what: 'Crashes at any transition of a revision',
    happens: 'The next start continues with the last committed status. Each replica is started once.',
    proofs: crashes('the next start continues with the revision, and starts its replica once'),
  },
  {
    where: 'runlake all',
    what: 'Crashes during an update or a deletion',
    happens:
      'The previous revision serves after the next start, until the update is completed. A deletion is completed.',
    proofs: crashesInUpdates(
      'kill -9 during an update: the previous revision serves, and the update is then completed',
      'kill -9 during a deletion: the next start completes it',
    ),
  },
  {
    where: 'runlake all',
    what: 'Crashes while an update fails or is replaced by a newer one',
    happens:
      'A failure is stored once, and the previous revision serves. A newer revision that was not committed neither interrupts the one that is being built, nor skips the one that waits.',
    proofs: crashesInUpdates(
      'kill -9 before the transition to CREATE_FAILED is committed: it fails once, and the previous revision serves',
      'kill -9 before the transition to %s is committed: it fails once, and the previous revision serves',
      'kill -9 before a waiting revision is skipped: it waits on, until a newer one is committed',
      'kill -9 before a newer revision is committed: the one that was being built continues',
    ),
  },
  {
    where: 'Host',
    what: 'Stalls, so that its leases expire',
    happens: 'Another host runs its replicas. The stalled host ends them as soon as it renews its leases.',
    proofs: hosts('a host whose lease was taken ends its replica at once; the other one runs it'),
  },
  {
    where: 'Host',
    what: 'Cannot write that it has released a revision or a replica',
    happens: 'It no longer renews the lease. The lease expires, and any host can claim it.',
    proofs: deletions('a lease of %s that could not be released expires, and the work continues'),
  },
  {
    where: 'Driver',
    what: 'Cannot stop a replica, or a deletion fails',
    happens: 'It is tried again with backoff. Other deployments are not affected.',
    proofs: deletions(
      'a replica that cannot be stopped delays the deletion of its deployment only',
      'more failed deletions than a host works on at once do not block later ones, and are retried with backoff',
    ),
  },
  {
    where: 'Replica',
    what: 'Ends by itself',
    happens: 'It is started again, after a delay that doubles with each failure, and counted.',
    proofs: hosts('starts a replica that ended again, and counts that'),
  },
];
