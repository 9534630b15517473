import type { ObjectStore } from '../../infra/objects/object-store.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { formatOf, keyOfManifest } from './export-locations.ts';
import type { ExportRecord } from './export-record.ts';

/** Version of the manifest's format. Adding a field does not change it. */
const manifestVersion = 1;

export interface ManifestFile {
  readonly path: string;
  readonly runId: string;
  readonly part: number;
  readonly rows: number;
  readonly bytes: number;
  readonly sha256: string;
}

interface ManifestRun {
  readonly id: string;
  readonly startTime: string;
  readonly endTime: string;
  readonly rows: number;
  readonly lateRuns: number;
}

/**
 * Writes the manifest of an export whose export runs are all COMPLETED, and overwrites an existing one. A manifest in
 * the bucket means that the set of files is complete. Its format is described in `docs/guide/07-bulk-export.md`.
 *
 * @returns `takeBack`, which deletes the manifest if the export turns out to have ended in another state.
 * @throws errors of the object store and the database, and the reason of `signal`.
 */
export async function writeManifest(
  { database }: { readonly database: Database },
  of: ExportRecord,
  store: ObjectStore,
  { uncheckedFiles, signal }: { readonly uncheckedFiles: number; readonly signal?: AbortSignal | undefined },
): Promise<{ takeBack(): Promise<void> }> {
  const key = keyOfManifest(of);
  const text = JSON.stringify(await buildManifest(database, of, uncheckedFiles), null, 2);
  await store.put(key, Buffer.from(`${text}\n`), { contentType: 'application/json', signal });
  return { takeBack: () => store.delete(key).catch(() => undefined) };
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
  const { version, compression, fields } = formatOf(of);
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
    // Files that the destination denies reading. All others were checked shortly before the manifest was written.
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
