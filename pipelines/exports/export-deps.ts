import type { Config } from '../../infra/config/settings.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import type { ObjectStore } from '../../infra/objects/object-store.ts';
import { type ReadClock, readDatabaseClock } from '../../infra/postgres/clock.ts';
import type { Database, Sql } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { ExportChunk } from './chunk-reader.ts';
import type { ExportCursor } from './members.ts';
import type { ExportFormat, ExportScope } from './record.ts';

/** A file that is ready for upload. */
export interface ParquetPart {
  /** Path of the file, `<folder>/part.parquet`. The caller removes the file. */
  readonly path: string;
  /** Number of rows; 0 if all runs of the chunk have been deleted. */
  readonly rows: number;
  /** Size of the file in bytes. */
  readonly bytes: number;
}

/** Reads the members of an export run and writes them to files. */
export interface ChunkSource<Read> {
  /** Counts the members, and the runs in the window that were received too late to be members. */
  count(signal: AbortSignal): Promise<{ readonly members: number; readonly late: number }>;
  /**
   * Finds the chunk that follows `after`, or the first chunk of the window if `after` is undefined. Returns undefined
   * if no member is left.
   */
  find(after: ExportCursor | undefined, signal: AbortSignal): Promise<ExportChunk | undefined>;
  /** Reads a chunk into `folder`, which only this chunk may use. */
  read(chunk: ExportChunk, folder: string, signal: AbortSignal): Promise<Read>;
  /** Writes the file to upload, in the same folder. It has no rows if all runs of the chunk have been deleted. */
  encode(read: Read, folder: string, signal: AbortSignal): Promise<ParquetPart>;
  /** Releases the resources of the source. */
  close(): void;
}

export type ExportLimits = Pick<
  Config,
  | 'exportLeaseMs'
  | 'exportMaxSchedules'
  | 'exportMaxUnfinished'
  | 'exportRetries'
  | 'exportRetryDelayMs'
  | 'exportRunsAtOnce'
  | 'exportRunTimeoutMs'
  | 'exportScheduleDelayMs'
  | 'exportSliceRows'
  | 'exportsPerWorkspace'
  | 'exportTimeoutMs'
>;

/** Dependencies of all operations on bulk exports. */
export interface ExportDeps {
  readonly database: Database;
  readonly log: Pick<EventLog, 'position'>;
  readonly jobs: Pick<Jobs, 'enqueue'>;
  readonly limits: ExportLimits;
  readonly logger: Logger;
  /** Clock that exports use. Default: the clock of Postgres. */
  readonly now?: ReadClock | undefined;
}

/**
 * Reads the clock that determines the creation, start, retry, timeout and schedules of exports.
 *
 * @param sql The transaction of the caller, if there is one.
 */
export async function readClock({ database, now = readDatabaseClock }: ClockDeps, sql: Sql = database): Promise<Date> {
  return new Date(await now(sql));
}

export type ClockDeps = Pick<ExportDeps, 'database' | 'now'>;

export interface ExportWorkerDeps extends ExportDeps {
  readonly log: Pick<EventLog, 'position' | 'isStored'>;
  /**
   * Opens the object store of a destination; the caller must close it.
   *
   * @throws errors of the store, and NOT_FOUND if the destination was deleted.
   */
  readonly openStore: (destination: {
    readonly workspaceId: string;
    readonly destinationId: string;
  }) => Promise<ObjectStore>;
  /** Opens the source that reads the runs of an export run and writes them to files. */
  readonly openSource: (scope: ExportScope, format: ExportFormat) => ChunkSource<unknown>;
}
