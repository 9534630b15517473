import type { TimeWindow } from '../runs/run-columns.ts';

/** Which runs belong to one export run, frozen when the export was created. Every query of an export is bound to it. */
export interface ExportScope {
  readonly tenantId: string;
  readonly projectId: string;
  /** By key time, half-open. */
  readonly window: TimeWindow;
  /** Runs whose first event was received later are not members. */
  readonly membersUntilMicros: number;
}

/**
 * Position of a run in the order of an export: key time, then trace id, then run id, compared as ClickHouse compares them.
 */
export interface ExportCursor {
  readonly startTimeMicros: number;
  readonly traceId: string;
  readonly runId: string;
}

/** Consecutive members of a scope: those after `after` up to and including `last`. */
export interface ExportSlice {
  /** Undefined: from the start of the window. */
  readonly after: ExportCursor | undefined;
  readonly last: ExportCursor;
  /** Number of members when the slice was found; later deletions can only reduce it. */
  readonly rows: number;
  /** Total size of the JSON columns. */
  readonly bytes: number;
}

/** Format of the exported files. */
export interface ExportFormat {
  readonly version: 'v1' | 'v2_beta';
  readonly compression: 'none' | 'gzip' | 'snappy' | 'zstandard';
  /** Column names, in the order of the file. */
  readonly fields: readonly string[];
}
