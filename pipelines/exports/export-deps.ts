import type { Config } from '../../infra/config/settings.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import type { ObjectStore } from '../../infra/objects/object-store.ts';
import { type ReadClock, readDatabaseClock } from '../../infra/postgres/clock.ts';
import type { Database, Sql } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { ChunkSource } from './export-run.ts';
import type { ExportFormat, ExportScope } from './record.ts';

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

/** Dependencies of the export workers. */
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
