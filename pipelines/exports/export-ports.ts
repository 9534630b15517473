import type { Config } from '../../infra/config/settings.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import type { ObjectStore } from '../../infra/objects/object-store.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { ExportFormat, ExportScope } from './export-scope.ts';
import type { SliceSource } from './runs/export-run.ts';

export type ExportLimits = Pick<
  Config,
  | 'exportClockSkewMs'
  | 'exportLeaseMs'
  | 'exportMaxDays'
  | 'exportMaxSchedules'
  | 'exportMaxUnfinished'
  | 'exportRetries'
  | 'exportRetryDelayMs'
  | 'exportRunsAtOnce'
  | 'exportRunTimeoutMs'
  | 'exportScheduleDelayMs'
  | 'exportSliceBytes'
  | 'exportSliceRows'
  | 'exportsPerWorkspace'
  | 'exportTimeoutMs'
>;

/** What every operation on bulk exports needs. */
export interface ExportPorts {
  readonly database: Database;
  readonly log: Pick<EventLog, 'position' | 'stored'>;
  readonly jobs: Pick<Jobs, 'enqueue'>;
  readonly limits: ExportLimits;
  readonly logger: Logger;
  /** The time by which exports are made, started, tried again and given up. */
  readonly now: () => Date;
}

/** What those need who do the work. */
export interface WorkPorts extends ExportPorts {
  /** The store behind a destination; to be closed by the caller. @throws its faults, and NOT_FOUND where it is no more. */
  readonly openStore: (destination: {
    readonly workspaceId: string;
    readonly destinationId: string;
  }) => Promise<ObjectStore>;
  /** How the members of a run become files. */
  readonly openSource: (scope: ExportScope, format: ExportFormat) => SliceSource<unknown>;
}
