import { formatWithRemedy, isRunlakeError, type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import {
  createDestinationError,
  isMissingObjectError,
  isWorthRetrying,
  type ObjectStore,
} from '../../infra/objects/object-store.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { ExportFile } from './checkpoint.ts';
import { type ExportWorkerDeps, readClock } from './export-deps.ts';
import { buildManifestKey, buildPartKey, type ExportRecord, toExportFormat } from './record.ts';
import { endExport, enqueueWaitingExports, finishExport } from './states.ts';

/**
 * Completes an export whose export runs are all COMPLETED: checks its files and writes the manifest.
 *
 * @param checking If aborted, checking the files stops; a later call continues it.
 * @throws errors of the database, transient errors of the object store, and the reasons of the signals.
 */
export async function completeExport(
  deps: ExportWorkerDeps,
  of: ExportRecord,
  { signal, checking }: { readonly signal?: AbortSignal | undefined; readonly checking: AbortSignal },
): Promise<void> {
  try {
    const store = await deps.openStore(of);
    try {
      const check = await verifyFiles(deps, of, store, checking);
      if (check.kind === 'gone') return await failExport(deps, of, check);
      if (check.unchecked > 0) {
        const about = { exportId: of.id, files: check.unchecked };
        deps.logger.warn(about, 'cannot check files of a bulk export: its destination denies reading');
      }
      const manifest = await writeManifest(deps, of, store, { uncheckedFiles: check.unchecked, signal });
      const completed = await finishExport(deps, of.id, { to: 'COMPLETED', reason: null });
      // If the export was cancelled or timed out meanwhile, delete the manifest, which would claim that the export is
      // complete. If another worker completed the export, keep the manifest.
      if (!completed && !(await isCompleted(deps, of.id))) await manifest.deleteManifest();
    } finally {
      await store.close();
    }
  } catch (err) {
    if (!isRunlakeError(err) || isWorthRetrying(err)) throw err;
    deps.logger.error({ err, exportId: of.id }, 'cannot write the manifest of a bulk export');
    await finishExport(deps, of.id, {
      to: 'FAILED',
      reason: `The manifest cannot be written: ${formatWithRemedy(err)}`,
    });
  }
}

/**
 * Ends an export as FAILED because one of its files is missing. The export is not retried, because a lost file cannot
 * be recreated. The export run stays COMPLETED, and the cause is added to its `errors`.
 */
async function failExport(
  deps: ExportWorkerDeps,
  of: ExportRecord,
  { runId, error }: Extract<FilesCheck, { kind: 'gone' }>,
): Promise<void> {
  deps.logger.error({ err: error, exportId: of.id, runId }, 'a file of a bulk export is missing in its destination');
  const now = await readClock(deps);
  const ended = await deps.database.transaction(async (tx) => {
    const workspaceId = await endExport(tx, of.id, { to: 'FAILED', reason: formatWithRemedy(error) }, now);
    if (workspaceId === undefined) return undefined;
    await tx.execute(
      `UPDATE bulk_export_runs SET updated_at = $3,
         errors = coalesce(errors, '{}') || jsonb_build_object('retry_' || retry_number, $2::text)
       WHERE id = $1 AND status = 'COMPLETED'`,
      [runId, formatWithRemedy(error), now.toISOString()],
    );
    return workspaceId;
  });
  if (ended !== undefined) await enqueueWaitingExports(deps, ended);
}

async function isCompleted({ database }: Pick<ExportWorkerDeps, 'database'>, exportId: string): Promise<boolean> {
  const [of] = await database.query(`SELECT FROM bulk_exports WHERE id = $1 AND status = 'COMPLETED'`, [exportId]);
  return of !== undefined;
}

/** Version of the format of the manifest. It does not change when a field is added. */
const manifestVersion = 1;

interface ManifestFile extends ExportFile {
  readonly runId: string;
}

interface ManifestRun {
  readonly id: string;
  readonly startTime: string;
  readonly endTime: string;
  readonly rows: number;
  readonly lateRuns: number;
}

/**
 * Writes the manifest of an export whose export runs are all COMPLETED; an existing manifest is overwritten. A manifest
 * in the bucket means that the set of files is complete. Its format is described in `docs/guide/07-bulk-export.md`.
 *
 * @returns `deleteManifest`, a function that deletes the manifest if the export turns out to have ended in another
 *   state.
 * @throws errors of the object store and the database, and the reason of `signal`.
 */
async function writeManifest(
  { database }: { readonly database: Database },
  of: ExportRecord,
  store: ObjectStore,
  { uncheckedFiles, signal }: { readonly uncheckedFiles: number; readonly signal?: AbortSignal | undefined },
): Promise<{ deleteManifest(): Promise<void> }> {
  const key = buildManifestKey(of);
  const text = JSON.stringify(await buildManifest(database, of, uncheckedFiles), null, 2);
  await store.put(key, Buffer.from(`${text}\n`), { contentType: 'application/json', signal });
  return { deleteManifest: () => store.delete(key).catch(() => undefined) };
}

async function buildManifest(database: Database, of: ExportRecord, uncheckedFiles: number) {
  const runs = await database.query<ManifestRun>(
    `SELECT id, start_time AS "startTime", end_time AS "endTime", rows_written AS rows, coalesce(late_runs, 0) AS "lateRuns"
     FROM bulk_export_runs WHERE bulk_export_id = $1 ORDER BY start_time`,
    [of.id],
  );
  const files = await database.query<ManifestFile>(
    `SELECT f.path, f.bulk_export_run_id AS "runId", f.part, f.rows, f.bytes, f.sha256
     FROM bulk_export_files AS f JOIN bulk_export_runs AS r ON r.id = f.bulk_export_run_id
     WHERE r.bulk_export_id = $1 ORDER BY r.start_time, f.part`,
    [of.id],
  );
  const { version, compression, fields } = toExportFormat(of);
  return {
    manifest_version: manifestVersion,
    bulk_export_id: of.id,
    tenant_id: of.workspaceId,
    session_id: of.projectId,
    start_time: of.startTime,
    end_time: of.endTime,
    members_until: of.membersUntil,
    format: of.format,
    format_version: version,
    compression,
    fields,
    rows: sum(files.map(({ rows }) => rows)),
    bytes: sum(files.map(({ bytes }) => bytes)),
    // Number of files that the destination does not allow to be read. All other files were checked shortly before the
    // manifest was written.
    unchecked_files: uncheckedFiles,
    late_runs: sum(runs.map(({ lateRuns }) => lateRuns)),
    runs: runs.map(({ id, startTime, endTime, rows, lateRuns }) => ({
      id,
      start_time: startTime,
      end_time: endTime,
      rows,
      late_runs: lateRuns,
    })),
    files: files.map(({ path, runId, part, rows, bytes, sha256 }) => ({
      path,
      run_id: runId,
      part,
      rows,
      bytes,
      sha256,
    })),
  };
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

const maxConcurrentRequests = 8;
const filesPerUpdate = 200;
const checkValiditySeconds = 600;
/** Adds to the validity for each file of the export, so that a check that needs many calls ends. */
const checkValiditySecondsPerFile = 0.05;
/** Number of files after which a destination that has denied reading all of them is not asked for others. */
const minDeniedFiles = 20;

interface RecordedFile {
  readonly runId: string;
  readonly startTime: string;
  readonly part: number;
  readonly path: string;
  readonly bytes: number;
  readonly etag: string | null;
}

/**
 * Result of the check. `unchecked` is the number of files that could not be checked, because the destination does not
 * allow reading them.
 */
type FilesCheck =
  | { readonly kind: 'present'; readonly unchecked: number }
  | { readonly kind: 'gone'; readonly runId: string; readonly error: RunlakeError };

/**
 * Checks that every recorded file of an export exists in its destination. This happens before the manifest is written,
 * and is needed because a bucket that was emptied, or deleted and created again, accepts writes without an error.
 *
 * The time of each successful check is stored, so that the next call can continue an interrupted check. Files whose
 * last check is too old are checked again, because they may have been deleted in the meantime. After an error no further
 * file is checked, because each request to a bucket that hangs takes until its timeout.
 *
 * @throws errors of the object store and the database, and the reason of `signal`.
 */
async function verifyFiles(
  { database }: { readonly database: Database },
  of: ExportRecord,
  store: ObjectStore,
  signal: AbortSignal,
): Promise<FilesCheck> {
  const files = await database.query<RecordedFile>(
    `SELECT f.bulk_export_run_id AS "runId", r.start_time AS "startTime", f.part, f.path, f.bytes, f.etag
     FROM bulk_export_files AS f JOIN bulk_export_runs AS r ON r.id = f.bulk_export_run_id
     WHERE r.bulk_export_id = $1 AND (f.checked_at IS NULL OR f.checked_at < now() - make_interval(secs => $2 + $3::float8 * (
       SELECT count(*) FROM bulk_export_files AS f JOIN bulk_export_runs AS r ON r.id = f.bulk_export_run_id
       WHERE r.bulk_export_id = $1)))
     ORDER BY r.start_time, f.part`,
    [of.id, checkValiditySeconds, checkValiditySecondsPerFile],
  );
  let unchecked = 0;
  let present = 0;
  for (let from = 0; from < files.length; from += filesPerUpdate) {
    const found: RecordedFile[] = [];
    let gone: { readonly runId: string; readonly error: RunlakeError } | undefined;
    let failure: { readonly error: unknown } | undefined;
    const check = async (file: RecordedFile) => {
      if (gone !== undefined || failure !== undefined) return;
      const deniesReading = present === 0 && unchecked >= minDeniedFiles;
      try {
        const state = deniesReading && file.etag === null ? 'unreadable' : await checkFile(of, file, store, signal);
        if (state === 'present') {
          found.push(file);
          present++;
        } else if (state === 'unreadable') unchecked++;
        else {
          const params = { where: file.path, reason: state };
          gone = { runId: file.runId, error: runlakeError('DESTINATION_FILE_MISSING', params) };
        }
      } catch (error) {
        failure ??= { error };
      }
    };
    await forEachConcurrently(maxConcurrentRequests, files.slice(from, from + filesPerUpdate), check, signal);
    await storeCheckTimes(database, found);
    if (gone !== undefined) return { kind: 'gone', ...(gone as { runId: string; error: RunlakeError }) };
    if (failure !== undefined) throw (failure as { error: unknown }).error;
    signal.throwIfAborted();
  }
  return { kind: 'present', unchecked };
}

async function checkFile(
  of: ExportRecord,
  file: RecordedFile,
  store: ObjectStore,
  signal: AbortSignal,
): Promise<'present' | 'unreadable' | string> {
  const key = buildPartKey(of, { id: file.runId, startTime: file.startTime }, file.part);
  try {
    const stat = await store.stat(key, { signal });
    if (stat === undefined) {
      await confirmMissing(file, key, store, signal);
      return 'it is missing';
    }
    if (stat.bytes !== file.bytes) return `it has ${stat.bytes} bytes, but ${file.bytes} were written`;
    return stat.etag === undefined || file.etag === null || stat.etag === file.etag
      ? 'present'
      : 'it has other content';
  } catch (error) {
    if (!isRunlakeError(error) || error.code !== 'DESTINATION_ACCESS_DENIED' || isWorthRetrying(error)) throw error;
    // Without the permission to list objects, S3 denies access to a missing object instead of reporting it as missing.
    // A recorded ETag means that this file was readable when it was written.
    return file.etag === null ? 'unreadable' : 'it can no longer be read, and may be missing';
  }
}

/**
 * Confirms that a file is missing. A response to HEAD has no body, and status 404 may be that of a proxy whose store is down.
 *
 * @throws the error of any other response; DESTINATION_UNAVAILABLE if the object is there.
 */
async function confirmMissing(
  { path }: RecordedFile,
  key: string,
  store: ObjectStore,
  signal: AbortSignal,
): Promise<void> {
  try {
    await store.get(key, { maxBytes: 1, signal });
  } catch (error) {
    if (isMissingObjectError(error)) return;
    throw error;
  }
  throw createDestinationError(
    'DESTINATION_UNAVAILABLE',
    { step: 'read', location: path },
    'the object was missing, and then was there',
  );
}

async function storeCheckTimes(database: Database, files: readonly RecordedFile[]): Promise<void> {
  if (files.length === 0) return;
  await database.execute(
    `UPDATE bulk_export_files AS f SET checked_at = now()
     FROM unnest($1::uuid[], $2::int[]) AS found (run_id, part)
     WHERE f.bulk_export_run_id = found.run_id AND f.part = found.part`,
    [files.map(({ runId }) => runId), files.map(({ part }) => part)],
  );
}

/**
 * Calls `work` for each of `items`, with at most `max` calls in flight. If a call is rejected, the other items are
 * still processed.
 *
 * @param signal If aborted, no further call is started.
 * @throws the first rejection of `work`, after all calls have ended.
 */
export async function forEachConcurrently<Item>(
  max: number,
  items: readonly Item[],
  work: (item: Item) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  const errors: unknown[] = [];
  // All workers share one iterator, so that each item is processed only once.
  const remaining = items.values();
  const worker = async () => {
    for (const item of remaining) {
      if (signal?.aborted) return;
      await work(item).catch((error) => errors.push(error));
    }
  };
  await Promise.all(Array.from({ length: Math.min(max, items.length) }, worker));
  if (errors.length > 0) throw errors[0];
}
