/**
 * Checks that every recorded file of an export is in its destination, before the manifest says so: a bucket that was emptied, or deleted
 * and made again, answers writes as if nothing had happened.
 *
 * Each file that was found is noted, so that a check that was interrupted continues. What was noted longer ago than a while is checked
 * again, because files may go meanwhile.
 */
import { fault, isRunlakeError, type RunlakeError } from '../../infra/errors/runlake-error.ts';
import type { ObjectStore } from '../../infra/objects/object-store.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { eachAtMost } from './each-at-most.ts';
import { keyOfPart } from './export-places.ts';
import type { ExportRecord } from './export-record.ts';

const requestsAtOnce = 8;
/** Files of one note. */
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

/** What the check found: `unchecked` files may not be read in the destination. */
export type FilesCheck =
  | { readonly kind: 'present'; readonly unchecked: number }
  | { readonly kind: 'gone'; readonly runId: string; readonly error: RunlakeError };

/** @throws what store and database throw, and the reason of `signal`. */
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
      const state = await stateOf(of, file, store, signal);
      if (state === 'present') found.push(file);
      else if (state === 'unreadable') unchecked++;
      else {
        const params = { where: file.path, reason: state };
        gone = { runId: file.runId, error: fault('DESTINATION_FILE_GONE', params) };
      }
    };
    await eachAtMost(requestsAtOnce, files.slice(from, from + chunkFiles), check, signal);
    signal?.throwIfAborted();
    if (gone !== undefined) return { kind: 'gone', ...(gone as { runId: string; error: RunlakeError }) };
    await noteChecked(database, found);
  }
  return { kind: 'present', unchecked };
}

async function stateOf(
  of: ExportRecord,
  file: RecordedFile,
  store: ObjectStore,
  signal: AbortSignal | undefined,
): Promise<'present' | 'unreadable' | string> {
  const key = keyOfPart(of, { id: file.runId, startTime: file.startTime }, file.part);
  try {
    const stat = await store.stat(key, { signal });
    if (stat === undefined) return 'it is not there';
    if (stat.bytes !== file.bytes) return `it has ${stat.bytes} bytes, and ${file.bytes} were written`;
    return stat.etag === undefined || file.etag === null || stat.etag === file.etag
      ? 'present'
      : 'it has other content';
  } catch (error) {
    if (!isRunlakeError(error) || error.code !== 'DESTINATION_ACCESS_DENIED') throw error;
    // A store that may not be listed answers the same for a missing object. This file could be read when it was written.
    return file.etag === null ? 'unreadable' : 'it can no longer be read, as if it were not there';
  }
}

async function noteChecked(database: Database, files: readonly RecordedFile[]): Promise<void> {
  if (files.length === 0) return;
  await database.execute(
    `UPDATE bulk_export_files AS f SET checked_at = now()
     FROM unnest($1::uuid[], $2::int[]) AS found (run_id, part)
     WHERE f.bulk_export_run_id = found.run_id AND f.part = found.part`,
    [files.map(({ runId }) => runId), files.map(({ part }) => part)],
  );
}
