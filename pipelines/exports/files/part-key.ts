import type { ExportFormat } from '../export-scope.ts';

export interface PartPlace {
  readonly exportId: string;
  readonly tenantId: string;
  readonly projectId: string;
  readonly version: ExportFormat['version'];
  /** Any moment of the UTC day that the run of the export is about. */
  readonly dayMicros: number;
  /** The run of the export. */
  readonly runId: string;
  /** From 1 on. */
  readonly part: number;
}

/** Above, names still differ and only their order by text is lost. */
const partDigits = 6;

/**
 * Where one file of an export lies, relative to the prefix of its destination. Names sort by part, and a part that is written
 * again has the same. Source: SPEC 4.3 rule 2; in v2_beta all folders are `name=value`, as Hive reads them.
 */
export function partKey({ exportId, tenantId, projectId, version, dayMicros, runId, part }: PartPlace): string {
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

/** The folder that holds all files of an export. */
export function exportFolder({
  exportId,
  tenantId,
  projectId,
}: Pick<PartPlace, 'exportId' | 'tenantId' | 'projectId'>): string {
  return `export_id=${exportId}/tenant_id=${tenantId}/session_id=${projectId}`;
}
