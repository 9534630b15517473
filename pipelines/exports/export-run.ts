/**
 * The loop of one attempt at an export run. It reads the members of one day and uploads them to the bucket as files.
 *
 * Invariant: the recorded files contain exactly the members up to the recorded cursor, each of them once. At most one
 * part can be in the bucket without being recorded; the checkpoint then contains the number of this part, its path, and
 * the cursors at both ends of its chunk.
 *
 *   1. The members are counted, unless an earlier attempt has recorded their number.
 *   2. If an earlier attempt left a part pending (step 5), this part is processed first. Its uploads are aborted, and
 *      exactly its chunk is read again under the same part number, so that the new file overwrites any object that
 *      the earlier attempt left, also if it has no rows any more.
 *   3. The reader finds the next chunk and reads it into its own folder.
 *   4. The encoder writes the chunk as a Parquet file. The footer of this file is compared with what was read.
 *   5. The checkpoint records the part and its chunk as pending. Then the file is uploaded; the id of a multipart
 *      upload is recorded before its first byte is sent. Then one transaction records the file and moves the cursor.
 *      The folder of the chunk is removed.
 *   6. When no chunk is left, the runs that were received too late to be members are counted, and the run becomes
 *      COMPLETED.
 *
 * Steps 3, 4 and 5 run concurrently for three consecutive chunks. Each step is at most one chunk ahead of the next
 * step, so at most two chunks are on disk in addition to the chunk that is being uploaded. After a crash or an abort at
 * any point, the next worker that claims the run repeats what was not recorded. Every write in steps 1, 5 and 6 checks
 * the fencing token of this attempt (`checkpoint.ts`).
 */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { isWorthRetrying, type ObjectStore } from '../../infra/objects/object-store.ts';
import { counter, histogram } from '../../infra/telemetry/metrics.ts';
import { type Checkpoint, type ExportRunRecord, runColumns } from './checkpoint.ts';
import type { ExportChunk } from './chunk-reader.ts';
import type { ChunkSource, ExportWorkerDeps, ParquetPart } from './export-deps.ts';
import { buildPartKey, type ExportRecord, exportColumns } from './record.ts';

const exportedRows = counter('runlake_export_rows_total', 'Runs in the files that bulk exports have recorded.', []);

const exportedBytes = counter('runlake_export_bytes_total', 'Bytes of files that bulk exports have recorded.', []);

const stageSeconds = histogram(
  'runlake_export_stage_seconds',
  'Duration of each stage of a bulk export for one chunk: find, read, encode, upload. The stages of successive chunks overlap.',
  ['stage'],
  [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300],
);

/**
 * Prefetches one item of `source` while the consumer uses the previous item. A consumer that stops early waits for the
 * item in flight, so that the source does no work afterwards. To keep this wait short, abort the work of the source
 * first.
 */
async function* prefetch<Item>(source: AsyncGenerator<Item>): AsyncGenerator<Item> {
  const fetchNext = () => {
    const nextItem = source.next();
    // The error is thrown when the consumer awaits this item.
    nextItem.catch(() => undefined);
    return nextItem;
  };
  let next = fetchNext();
  try {
    for (;;) {
      const { done, value } = await next;
      if (done) return;
      next = fetchNext();
      yield value;
    }
  } finally {
    await next.catch(() => undefined);
    await source.return(undefined);
  }
}

interface RunToExport<Read> {
  readonly source: ChunkSource<Read>;
  readonly store: Pick<ObjectStore, 'resolvePath' | 'upload' | 'abortUploads'>;
  readonly checkpoint: Checkpoint;
  /** Folder that only this attempt uses. The caller removes it. */
  readonly folder: string;
  readonly getPartKey: (part: number) => string;
  /** State of the row when the run was claimed. */
  readonly at: Pick<ExportRunRecord, 'rowsTotal' | 'rowsWritten' | 'latestCursor' | 'pendingUpload'> & {
    readonly nextPart: number;
  };
}

interface PlannedPart {
  readonly part: number;
  readonly chunk: ExportChunk;
  /** Whether an earlier attempt may have written an object under the key of this part. */
  readonly isRepeated: boolean;
}

type PartOnDisk<Made> = PlannedPart & { readonly folder: string; readonly made: Made };

/**
 * Executes one attempt at an export run.
 *
 * @throws errors of the source, the store and the database; EXPORT_ATTEMPT_OVER if another attempt has replaced this
 *   one; the reason of `signal` after an abort. In all cases no work of the attempt continues afterwards.
 */
export async function exportRun<Read>(run: RunToExport<Read>, signal: AbortSignal): Promise<void> {
  const { source, checkpoint, at } = run;
  if (at.rowsTotal === null) {
    const { members } = await source.count(signal);
    await checkpoint.recordTotal(members);
  }
  let rowsWritten = at.rowsWritten;
  // If one step fails, the other steps stop at once, because their chunks are no longer needed.
  const failed = new AbortController();
  const steps = AbortSignal.any([signal, failed.signal]);
  for await (const part of prefetch(encodeChunks(run, prefetch(readParts(run, steps)), steps))) {
    try {
      steps.throwIfAborted();
      rowsWritten += await writePart(run, part, steps);
    } catch (error) {
      failed.abort(error);
      throw error;
    }
  }
  const { members, late } = await source.count(signal);
  // The late runs are all runs of the window that are in no file, including runs that became members at positions the
  // cursor had already passed.
  await checkpoint.complete({ lateRuns: Math.max(late, members + late - rowsWritten) });
}

/** Steps 2 and 3 of the header comment: reads each chunk into its own folder. */
async function* readParts<Read>(run: RunToExport<Read>, signal: AbortSignal): AsyncGenerator<PartOnDisk<Read>> {
  for await (const next of listParts(run, signal)) {
    const folder = join(run.folder, `part-${next.part}`);
    await mkdir(folder, { recursive: true });
    const made = await measureStage('read', () => run.source.read(next.chunk, folder, signal));
    yield { ...next, folder, made };
  }
}

async function* listParts<Read>(run: RunToExport<Read>, signal: AbortSignal): AsyncGenerator<PlannedPart> {
  const { latestCursor, pendingUpload, nextPart } = run.at;
  let part = nextPart;
  let after = latestCursor ?? undefined;
  if (pendingUpload !== null) {
    const { uploadId, last, rows, bytes } = pendingUpload;
    part = pendingUpload.part;
    await run.store.abortUploads(run.getPartKey(part), uploadId === null ? [] : [uploadId], { signal });
    yield { part, chunk: { after: pendingUpload.after ?? undefined, last, rows, bytes }, isRepeated: true };
    part += 1;
    after = last;
  }
  for (;;) {
    const chunk = await measureStage('find', () => run.source.find(after, signal));
    if (chunk === undefined) return;
    yield { part, chunk, isRepeated: false };
    part += 1;
    after = chunk.last;
  }
}

/** Step 4 of the header comment: encodes each chunk as a Parquet file. */
async function* encodeChunks<Read>(
  run: RunToExport<Read>,
  chunks: AsyncGenerator<PartOnDisk<Read>>,
  signal: AbortSignal,
): AsyncGenerator<PartOnDisk<ParquetPart>> {
  for await (const chunk of chunks) {
    yield { ...chunk, made: await measureStage('encode', () => run.source.encode(chunk.made, chunk.folder, signal)) };
  }
}

/** Step 5 of the header comment: uploads a part and records it. @returns the number of rows that were recorded. */
async function writePart<Read>(
  { store, checkpoint, getPartKey }: RunToExport<Read>,
  { part, chunk, isRepeated: repeated, folder, made }: PartOnDisk<ParquetPart>,
  signal: AbortSignal,
): Promise<number> {
  const { after, last, rows: found, bytes: chunkBytes } = chunk;
  const key = getPartKey(part);
  // All runs of the chunk may have been deleted since it was found. If an earlier attempt may have left an object under this
  // key, a file without rows replaces it: exports do not need the permission to delete, and the number is not used again.
  if (made.rows === 0 && !repeated) await checkpoint.skipTo(last);
  else {
    const path = store.resolvePath(key);
    const pending = { part, after: after ?? null, last, rows: found, bytes: chunkBytes, path, uploadId: null };
    await checkpoint.recordPendingUpload(pending);
    const recordUpload = (uploadId: string) => checkpoint.recordUpload(uploadId);
    const confirmReplace = () => checkpoint.confirm();
    const options = { signal, recordUpload, confirmReplace };
    const { bytes, sha256, etag = null } = await measureStage('upload', () => store.upload(key, made.path, options));
    // Abort multipart uploads that an earlier attempt had requested but that the object store created only after step
    // 2.
    if (repeated) await store.abortUploads(key, [], { signal });
    await checkpoint.recordFile({ part, path, rows: made.rows, bytes, sha256, etag }, last);
    exportedRows.inc(made.rows);
    exportedBytes.inc(bytes);
  }
  await rm(folder, { recursive: true, force: true });
  return made.rows;
}

async function measureStage<Result>(
  stage: 'find' | 'read' | 'encode' | 'upload',
  work: () => Promise<Result>,
): Promise<Result> {
  const end = stageSeconds.startTimer({ stage });
  try {
    return await work();
  } finally {
    end();
  }
}

/** Timeout for the clean-up of a bucket that hangs. The next sweep tries again. */
const cleanupTimeoutMs = 5_000;

/**
 * Removes from the bucket what an ended export run has written but not recorded: a multipart upload, or an object that
 * no file list contains. Does nothing while a worker may still be writing. After an error that may not last, or a timeout, a
 * later call tries again. After any other error, for example a missing permission, no further attempt is made.
 *
 * @param run The last worker of the run also passes its `fence`; the call then ends the lease of this worker.
 * @throws errors of the database.
 */
export async function cleanUpRun(
  deps: Pick<ExportWorkerDeps, 'database' | 'openStore' | 'logger'>,
  run: Pick<ExportRunRecord, 'id'> & { readonly fence?: number },
): Promise<void> {
  const { database, logger } = deps;
  if (run.fence !== undefined) {
    await database.execute(
      'UPDATE bulk_export_runs SET lease_until = NULL WHERE id = $1 AND fence = $2 AND finished_at IS NOT NULL',
      [run.id, run.fence],
    );
  }
  const [left] = await database.query<ExportRunRecord>(
    `SELECT ${runColumns} FROM bulk_export_runs AS r
     WHERE id = $1 AND finished_at IS NOT NULL AND pending_upload IS NOT NULL
       AND (lease_until IS NULL OR lease_until <= clock_timestamp())`,
    [run.id],
  );
  const pending = left?.pendingUpload;
  if (left === undefined || pending === undefined || pending === null) return;
  const [of] = await database.query<ExportRecord>(`SELECT ${exportColumns} FROM bulk_exports AS e WHERE id = $1`, [
    left.exportId,
  ]);
  if (of === undefined) return;
  const signal = AbortSignal.timeout(cleanupTimeoutMs);
  try {
    const store = await deps.openStore(of);
    try {
      const key = buildPartKey(of, left, pending.part);
      await store.abortUploads(key, pending.uploadId === null ? [] : [pending.uploadId], { signal });
      await store.delete(key, { signal });
    } finally {
      await store.close();
    }
  } catch (err) {
    logger.warn({ err, runId: left.id }, 'cannot remove unrecorded objects of an export run from the bucket');
    if (signal.aborted || (isRunlakeError(err) && err.class !== 'terminal' && isWorthRetrying(err))) return;
  }
  await database.execute(
    'UPDATE bulk_export_runs SET pending_upload = NULL WHERE id = $1 AND finished_at IS NOT NULL',
    [left.id],
  );
}
