/**
 * The loop of one attempt at a run of an export: from the members of a day to files in the bucket.
 *
 * Invariant: the files that are recorded hold exactly the members up to the recorded cursor, each once. What is in the bucket
 * and not recorded is one part at most, and the checkpoint says which: its number, both ends of its slice, its path.
 *
 *   1. How many runs belong to it is counted once, when it is first taken up.
 *   2. A part that was noted and not recorded comes first: uploads of it are taken back, and exactly its slice is read again under
 *      its number, so that it lies over whatever is in the bucket.
 *   3. The reader finds the slice behind the last one and reads it into a folder of its own.
 *   4. The encoder makes a Parquet file of it, which is checked against what was read.
 *   5. Part and slice go into the checkpoint; then the file goes up, its upload's id noted before its first byte; then one
 *      transaction adds the file and moves the cursor. The folder goes.
 *   6. No slice is left: what came too late to belong to it is counted, and the run is COMPLETED.
 *
 * 3, 4 and 5 go on at the same time for three slices in a row, each one slice ahead of the next step and no further; so at most
 * two lie on the disk beside the one that goes up. Died or aborted anywhere: what was not recorded is done again by whoever
 * takes the run up. Every write of 1, 5 and 6 demands the fence of this attempt (`checkpoint.ts`).
 */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ObjectStore } from '../../../infra/objects/object-store.ts';
import { exportedBytes, exportedRows, stageSeconds } from '../export-metrics.ts';
import type { ExportCursor, ExportSlice } from '../export-scope.ts';
import { ahead } from './ahead.ts';
import type { Checkpoint } from './checkpoint.ts';
import type { PendingUpload } from './run-record.ts';

/** The members of a run, and how files are made of them. */
export interface SliceSource<Read> {
  /** Members, and runs of the window that came later. */
  count(signal: AbortSignal): Promise<{ readonly members: number; readonly late: number }>;
  /** The slice behind `after`, or behind the beginning of the window; undefined where no member is left. */
  find(after: ExportCursor | undefined, signal: AbortSignal): Promise<ExportSlice | undefined>;
  /** Reads a slice into `folder`, which is its own. */
  read(slice: ExportSlice, folder: string, signal: AbortSignal): Promise<Read>;
  /** Makes the file that goes up, in the same folder; undefined where no run of the slice is left. */
  encode(read: Read, folder: string, signal: AbortSignal): Promise<EncodedPart | undefined>;
  /** Gives back what it works with. */
  close(): void;
}

export interface EncodedPart {
  readonly path: string;
  readonly rows: number;
  readonly bytes: number;
}

export interface RunToExport<Read> {
  readonly source: SliceSource<Read>;
  readonly store: Pick<ObjectStore, 'pathOf' | 'upload' | 'abortUploads' | 'delete'>;
  readonly checkpoint: Checkpoint;
  /** Of this attempt alone; removed by whoever made it. */
  readonly folder: string;
  /** Where a part goes in the store. */
  readonly keyOf: (part: number) => string;
  /** As the row said when the run was taken up. */
  readonly at: {
    readonly nextPart: number;
    readonly rowsTotal: number | null;
    readonly rowsWritten: number;
    readonly latestCursor: ExportCursor | null;
    readonly pendingUpload: PendingUpload | null;
  };
}

interface PartToMake {
  readonly part: number;
  readonly slice: ExportSlice;
  /** Something may lie at its key. */
  readonly repeated: boolean;
}

type PartOnDisk<Made> = PartToMake & { readonly folder: string; readonly made: Made };

/**
 * @throws what source, store and database throw; EXPORT_ATTEMPT_OVER where the attempt is no longer the last one; the reason of
 * `signal` where it was aborted. Nothing of it goes on then.
 */
export async function exportRun<Read>(run: RunToExport<Read>, signal: AbortSignal): Promise<void> {
  const { source, checkpoint, at } = run;
  if (at.rowsTotal === null) {
    const { members } = await source.count(signal);
    await checkpoint.noteTotal(members);
  }
  let rowsWritten = at.rowsWritten;
  // Whichever step fails, the others stop at once: nobody waits for a slice that nobody wants any more.
  const over = new AbortController();
  const steps = AbortSignal.any([signal, over.signal]);
  for await (const part of ahead(encoded(run, ahead(read(run, steps)), steps))) {
    try {
      steps.throwIfAborted();
      rowsWritten += await writePart(run, part, steps);
    } catch (error) {
      over.abort(error);
      throw error;
    }
  }
  const { members, late } = await source.count(signal);
  // Whatever is in the window and in no file is told, also what became a member behind the cursor.
  await checkpoint.complete({ lateRuns: Math.max(late, members + late - rowsWritten) });
}

/** Steps 2 and 3. */
async function* read<Read>(run: RunToExport<Read>, signal: AbortSignal): AsyncGenerator<PartOnDisk<Read>> {
  for await (const next of partsToMake(run, signal)) {
    const folder = join(run.folder, `part-${next.part}`);
    await mkdir(folder, { recursive: true });
    const made = await timed('read', () => run.source.read(next.slice, folder, signal));
    yield { ...next, folder, made };
  }
}

async function* partsToMake<Read>(run: RunToExport<Read>, signal: AbortSignal): AsyncGenerator<PartToMake> {
  const { latestCursor, pendingUpload, nextPart } = run.at;
  let part = nextPart;
  let after = latestCursor ?? undefined;
  if (pendingUpload !== null) {
    const { uploadId, last, rows, bytes } = pendingUpload;
    part = pendingUpload.part;
    await run.store.abortUploads(run.keyOf(part), uploadId === null ? [] : [uploadId], { signal });
    yield { part, slice: { after: pendingUpload.after ?? undefined, last, rows, bytes }, repeated: true };
    part += 1;
    after = last;
  }
  for (;;) {
    const slice = await timed('find', () => run.source.find(after, signal));
    if (slice === undefined) return;
    yield { part, slice, repeated: false };
    part += 1;
    after = slice.last;
  }
}

/** Step 4. */
async function* encoded<Read>(
  run: RunToExport<Read>,
  slices: AsyncGenerator<PartOnDisk<Read>>,
  signal: AbortSignal,
): AsyncGenerator<PartOnDisk<EncodedPart | undefined>> {
  for await (const slice of slices) {
    yield { ...slice, made: await timed('encode', () => run.source.encode(slice.made, slice.folder, signal)) };
  }
}

/** Step 5. @returns the rows that it added. */
async function writePart<Read>(
  { store, checkpoint, keyOf }: RunToExport<Read>,
  { part, slice, repeated, folder, made }: PartOnDisk<EncodedPart | undefined>,
  signal: AbortSignal,
): Promise<number> {
  const { after, last, rows: found, bytes: sliceBytes } = slice;
  const key = keyOf(part);
  if (made === undefined) {
    // Deleted since they were found. What an earlier attempt may have written of them is not listed, and goes as far as rights allow.
    if (repeated) await store.delete(key, { signal }).catch(() => undefined);
    await checkpoint.skipTo(last);
  } else {
    const path = store.pathOf(key);
    const pending = { part, after: after ?? null, last, rows: found, bytes: sliceBytes, path, uploadId: null };
    await checkpoint.notePending(pending);
    const noteUpload = (uploadId: string) => checkpoint.noteUpload(uploadId);
    const mayReplace = () => checkpoint.confirm();
    const options = { signal, noteUpload, mayReplace };
    const { bytes, sha256, etag = null } = await timed('upload', () => store.upload(key, made.path, options));
    // Of an earlier attempt; what was on its way then may have come to the store after it was taken back.
    if (repeated) await store.abortUploads(key, [], { signal });
    await checkpoint.recordFile({ part, path, rows: made.rows, bytes, sha256, etag }, last);
    exportedRows.inc(made.rows);
    exportedBytes.inc(bytes);
  }
  await rm(folder, { recursive: true, force: true });
  return made?.rows ?? 0;
}

async function timed<Result>(
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
