import type { TimeWindow } from '../runs/run-key.ts';

/** Which runs belong to one run of an export, frozen when the export was made. Every query of an export carries it whole. */
export interface ExportScope {
  readonly tenantId: string;
  readonly projectId: string;
  /** By key time, half-open. */
  readonly window: TimeWindow;
  /** Runs whose first event came later do not belong. */
  readonly membersUntilMicros: number;
}

/** Place of a run in the order of an export: key time, then trace, then id, as ClickHouse compares them. */
export interface ExportCursor {
  readonly startTimeMicros: number;
  readonly traceId: string;
  readonly runId: string;
}

/** Consecutive members of a scope: all behind `after` up to `last`, which belongs to it. */
export interface ExportSlice {
  /** Undefined at the beginning of the window. */
  readonly after: ExportCursor | undefined;
  readonly last: ExportCursor;
  /** When it was found; deletions can only lessen it. */
  readonly rows: number;
  /** Of its JSON columns. */
  readonly bytes: number;
}

/** What the files look like. */
export interface ExportFormat {
  readonly version: 'v1' | 'v2_beta';
  readonly compression: 'none' | 'gzip' | 'snappy' | 'zstandard';
  /** Names of columns, in the order of the files. */
  readonly fields: readonly string[];
}
