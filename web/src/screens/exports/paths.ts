import type { Answer } from '../../api/client.ts';

export type Destination = Answer<'get', '/api/v1/bulk-exports/destinations'>[number];
export type BulkExport = Answer<'get', '/api/v1/bulk-exports'>[number];

const dayMs = 86_400_000;

/** The values that determine the folder of an export. */
export interface ExportIds {
  readonly id: string;
  readonly tenant_id: string;
  readonly session_id: string;
}

/** Returns the folder of an export below the bucket, or below the folder of local exports. */
export function buildExportFolder({ config }: Destination, { id, tenant_id, session_id }: ExportIds): string {
  return joinPath(config.prefix, `export_id=${id}`, `tenant_id=${tenant_id}`, `session_id=${session_id}`);
}

/** Returns the folder of the files of the UTC day that contains `time`. */
export function buildDayFolder(
  exportFolder: string,
  formatVersion: BulkExport['format_version'],
  time: number,
): string {
  const [year, month, day] = new Date(time).toISOString().slice(0, 10).split('-');
  const resource = formatVersion === 'v1' ? 'runs' : 'resource=runs';
  return joinPath(exportFolder, resource, `year=${year}`, `month=${month}`, `day=${day}`);
}

/** Returns the starts of the UTC days between two times, of which `until` is exclusive. */
export function listDays(from: number, until: number): number[] {
  const days: number[] = [];
  for (let day = Math.floor(from / dayMs) * dayMs; day < until; day += dayMs) days.push(day);
  return days;
}

/** Formats the location of a destination for the viewer. */
export function describeLocation({ destination_type, config }: Destination): string {
  if (destination_type === 'local') return config.prefix || '(the root folder of local exports)';
  return joinPath(config.bucket_name ?? config.endpoint_url ?? '', config.prefix);
}

function joinPath(...parts: readonly string[]): string {
  return parts
    .map((part) => part.replace(/^\/+|\/+$/g, ''))
    .filter((part) => part !== '')
    .join('/');
}
