import type { ExportFormat } from '../export-scope.ts';

export interface PartLocation {
  readonly exportId: string;
  readonly tenantId: string;
  readonly projectId: string;
  readonly version: ExportFormat['version'];
  /** Any time in the UTC day of the export run, in microseconds since 1970. */
  readonly dayMicros: number;
  /** Id of the export run. */
  readonly runId: string;
  /** Starts at 1. */
  readonly part: number;
}

/** With more digits keys stay unique but no longer sort by part. */
const partDigits = 6;

/**
 * Object key of a file of an export, relative to the prefix of its destination. Keys sort by part, and writing a part
 * again uses the same key. Source: SPEC 4.3 rule 2; in v2_beta all folders are `name=value`, the Hive layout.
 */
export function partKey({ exportId, tenantId, projectId, version, dayMicros, runId, part }: PartLocation): string {
  const [year, month, day] = new Date(Math.floor(dayMicros / 1_000)).toISOString().slice(0, 10).split('-');
  const resource = version === 'v1' ? 'runs' : 'resource=runs';
  const file = `${runId}-${String(part).padStart(partDigits, '0')}.parquet`;
  return [
    exportFolder({ exportId, tenantId, projectId }),
    resource,
    `year=${year}`,
    `month=${month}`,
    `day=${day}`,
    file,
  ].join('/');
}

/** The folder of all files of an export. */
export function exportFolder({
  exportId,
  tenantId,
  projectId,
}: Pick<PartLocation, 'exportId' | 'tenantId' | 'projectId'>): string {
  return `export_id=${exportId}/tenant_id=${tenantId}/session_id=${projectId}`;
}
