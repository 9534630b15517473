/**
 * Checks that every recorded file of an export is in its destination before the manifest is written: a bucket that was
 * emptied, or deleted and created again, accepts writes without an error.
 *
 * The time of each successful check is stored, so that an interrupted check continues. Files checked longer ago than a
 * few minutes are checked again, because they may have been deleted meanwhile.
 */
import { isRunlakeError, type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { ObjectStore } from '../../infra/objects/object-store.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { eachAtMost } from './each-at-most.ts';
import { keyOfPart } from './export-locations.ts';
import type { ExportRecord } from './export-record.ts';

const requestsAtOnce = 8;
/** Files per UPDATE. */
const chunkFiles = 200;
const checkedForMinutes = 10;

interface RecordedFile {
  readonly runId: string;
  readonly startTime: string;
  readonly part: number;
  readonly path: string;
  readonly bytes: number;
  readonly etag: string | null;
}

/** Result of the check: `unchecked` is the number of files that the destination denies reading. */
export type FilesCheck =
  | { readonly kind: 'present'; readonly unchecked: number }
  | { readonly kind: 'gone'; readonly runId: string; readonly error: RunlakeError };

/** @throws errors of the object store and the database, and the reason of `signal`. */
export async function verifyFiles(
  { database }: { readonly database: Database },
  of: ExportRecord,
  store: ObjectStore,
  signal?: AbortSignal,
): Promise<FilesCheck> {
  const files = await database.query<RecordedFile>(
    `SELECT f.bulk_export_run_id AS "runId", r.start_time AS "startTime", f.part, f.path, f.bytes, f.etag
     FROM bulk_export_files AS f JOIN bulk_export_runs AS r ON r.id = f.bulk_export_run_id
     WHERE r.bulk_export_id = $1 AND (f.checked_at IS NULL OR f.checked_at < now() - make_interval(mins => $2))
     ORDER BY r.start_time, f.part`,
    [of.id, checkedForMinutes],
  );
  let unchecked = 0;
  for (let from = 0; from < files.length; from += chunkFiles) {
    const found: RecordedFile[] = [];
    let gone: { readonly runId: string; readonly error: RunlakeError } | undefined;
    const check = async (file: RecordedFile) => {
      if (gone !== undefined) return;
      const state = await checkFile(of, file, store, signal);
      if (state === 'present') found.push(file);
      else if (state === 'unreadable') unchecked++;
      else {
        const params = { where: file.path, reason: state };
        gone = { runId: file.runId, error: runlakeError('DESTINATION_FILE_MISSING', params) };
      }
    };
    await eachAtMost(requestsAtOnce, files.slice(from, from + chunkFiles), check, signal);
    signal?.throwIfAborted();
    if (gone !== undefined) return { kind: 'gone', ...(gone as { runId: string; error: RunlakeError }) };
    await storeChecked(database, found);
  }
  return { kind: 'present', unchecked };
}

async function checkFile(
  of: ExportRecord,
  file: RecordedFile,
  store: ObjectStore,
  signal: AbortSignal | undefined,
): Promise<'present' | 'unreadable' | string> {
  const key = keyOfPart(of, { id: file.runId, startTime: file.startTime }, file.part);
  try {
    const stat = await store.stat(key, { signal });
    if (stat === undefined) return 'it is missing';
    if (stat.bytes !== file.bytes) return `it has ${stat.bytes} bytes, but ${file.bytes} were written`;
    return stat.etag === undefined || file.etag === null || stat.etag === file.etag
      ? 'present'
      : 'it has other content';
  } catch (error) {
    if (!isRunlakeError(error) || error.code !== 'DESTINATION_ACCESS_DENIED') throw error;
    // Without permission to list, a store also denies access to missing objects. An ETag means that this file was
    // readable when it was written.
    return file.etag === null ? 'unreadable' : 'it can no longer be read, and may be missing';
  }
}

async function storeChecked(database: Database, files: readonly RecordedFile[]): Promise<void> {
  if (files.length === 0) return;
  await database.execute(
    `UPDATE bulk_export_files AS f SET checked_at = now()
     FROM unnest($1::uuid[], $2::int[]) AS found (run_id, part)
     WHERE f.bulk_export_run_id = found.run_id AND f.part = found.part`,
    [files.map(({ runId }) => runId), files.map(({ part }) => part)],
  );
}
