import { type CrashRow, proofs } from './crash-table.ts';

const exportWorker = proofs('test/crash/exports.test.ts');
const inBuckets = proofs('test/pipelines/exports/in-buckets.stack.ts');

/** Bulk exports: the rows in Postgres are authoritative; the queue only names the rows to process. */
export const exportRows: readonly CrashRow[] = [
  {
    where: 'Export worker',
    what: 'Crashes at any step of an export run: counting, finding, reading, encoding, uploading, recording',
    happens:
      'Its lease expires, and another worker claims the export run and continues after the last recorded file. A file that was in ' +
      'progress is written again and overwrites whatever exists. This does not count as a retry.',
    proofs: exportWorker('$when $step: another worker continues, and no recorded file is written again'),
  },
  {
    where: 'Export worker',
    what: 'Crashes while it uploads a file to a bucket: before, during and after a multipart upload, and before the end of the export',
    happens:
      'No object is incomplete. Runlake aborts the uploads that the worker began, as far as permissions allow. This includes an ' +
      'upload whose id the worker could not record, if Runlake may list uploads.',
    proofs: exportWorker('%s: the export is complete, as without the kill'),
  },
  {
    where: 'Redis, ClickHouse, Postgres',
    what: 'Crashes during an export and is restarted',
    happens:
      'The export continues without intervention after the last recorded file. Only an outage of ClickHouse counts as a retry. ' +
      'Runlake rebuilds a lost queue from the rows.',
    proofs: [
      ...proofs('test/crash/export-servers.test.ts')(
        '$server is killed $when a $step and restarted: the export continues without intervention and is complete',
      ),
      ...proofs('test/pipelines/exports/scheduler.test.ts')(
        'a lost queue is rebuilt from the rows: waiting exports, running exports, and export runs that are due',
      ),
    ],
  },
  {
    where: 'Bucket',
    what: 'Responds with 503, resets connections, stalls, or loses a response',
    happens: 'The client retries, then the export run does, after the last recorded file. No multipart upload is left.',
    proofs: inBuckets(
      '%s: the export run is retried and continues after the last recorded file',
      'a lost response to %s: no object is duplicated, and no upload is left',
      'continues after the last recorded file, and the export is complete',
    ),
  },
  {
    where: 'Bucket',
    what: 'Is deleted, or its key loses its permissions or expires, during an export',
    happens:
      'The export run and its export fail at once, with the cause. Finished files that still exist remain, and are listed.',
    proofs: inBuckets('%s: the export run and its export fail at once, and the other runs are cancelled'),
  },
  {
    where: 'User',
    what: 'Cancels an export during the upload of a file',
    happens:
      'The upload ends within two seconds and is aborted when the store responds. Finished files remain, and are listed.',
    proofs: inBuckets(
      'cancelled: the upload ends within two seconds and is aborted, and finished files remain',
      'cancelled while the store hangs: the pending upload is aborted when the store responds',
      'cancelled: finished files remain, and so does an upload that the key may not abort',
    ),
  },
];
