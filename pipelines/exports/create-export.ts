import { randomUUID } from 'node:crypto';
import { type FieldError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { feedbackEvents, runEvents } from '../../schemas/topics.ts';
import { formatTimeWithZone } from '../ingest/run-event/times.ts';
import { liveProjectIds } from '../runs/live-projects.ts';
import { allTimes } from '../runs/run-key.ts';
import { enqueueExport } from './enqueue.ts';
import { clockSkewMs, type ExportDeps } from './export-deps.ts';
import { resolveFields } from './export-fields.ts';
import type { ExportFormat } from './export-scope.ts';
import { insertExport } from './insert-export.ts';
import { type ExportWithProgress, readExport } from './read-export.ts';
import { requireExportQuota } from './require-export-quota.ts';

export interface NewExport {
  readonly destinationId: string;
  readonly projectId: string;
  readonly startTimeMicros: number;
  /** Exclusive. Undefined for a schedule. */
  readonly endTimeMicros: number | undefined;
  readonly intervalHours: number | undefined;
  readonly formatVersion: ExportFormat['version'];
  readonly compression: ExportFormat['compression'];
  /** Undefined: all fields. */
  readonly exportFields: readonly string[] | undefined;
}

const dayMicros = 86_400_000_000;
/** Maximum time range of one export: ten years, which is more than the tables keep. */
const maxDays = 3_660;
/** Unknown fields that an error names. */
const maxNamedFields = 5;

/**
 * Creates an export, or a schedule if `intervalHours` is given. Membership is frozen now: the runs first received until
 * the creation time plus the allowed clock skew. The log-end offsets are read after that time, so that they cover every
 * run accepted before it. An export is queued at once.
 *
 * @throws INVALID_REQUEST with the invalid fields; LIMIT_REACHED; NOT_FOUND if the workspace lacks the project or the
 *   destination; errors of the log and the database.
 */
export async function createExport(
  deps: ExportDeps,
  owner: { readonly workspaceId: string; readonly keyId: string },
  request: NewExport,
): Promise<ExportWithProgress> {
  const errors = validateExport(request, deps.now());
  if (errors.length > 0) throw runlakeError('INVALID_REQUEST', {}, { fields: errors });
  const { workspaceId } = owner;
  const { database, limits } = deps;
  const [project] = await liveProjectIds(database, workspaceId, [request.projectId]);
  if (project === undefined) throw runlakeError('NOT_FOUND', { what: 'Session' });

  const id = randomUUID();
  const createdAt = deps.now();
  const schedule = request.intervalHours !== undefined;
  const logPosition = schedule ? null : await readLogEndOffsets(deps);
  await database.transaction(async (tx) => {
    // The lock keeps a concurrent deletion of the destination waiting.
    const [destination] = await tx.query(
      `SELECT FROM bulk_export_destinations WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL FOR SHARE`,
      [request.destinationId, workspaceId],
    );
    if (destination === undefined) throw runlakeError('NOT_FOUND', { what: 'Bulk export destination' });
    await insertExport(tx, {
      id,
      workspaceId,
      destinationId: request.destinationId,
      projectId: project,
      createdByKeyId: owner.keyId,
      startTime: formatTimeWithZone(request.startTimeMicros),
      endTime: request.endTimeMicros === undefined ? null : formatTimeWithZone(request.endTimeMicros),
      intervalHours: request.intervalHours ?? null,
      formatVersion: request.formatVersion,
      compression: request.compression,
      exportFields: request.exportFields === undefined ? null : [...new Set(request.exportFields)],
      sourceExportId: null,
      logPosition,
      createdAt,
      membersUntil: new Date(createdAt.getTime() + clockSkewMs),
    });
    await requireExportQuota(tx, workspaceId, schedule, limits);
  });
  if (!schedule) await enqueueExport(deps, id);
  return readExport(database, workspaceId, id);
}

/** Log-end offsets of the topics whose events an export contains, by topic. */
export async function readLogEndOffsets({ log }: Pick<ExportDeps, 'log'>) {
  const topics = [runEvents, feedbackEvents];
  const ends = await Promise.all(topics.map(async (topic) => [topic.name, await log.position(topic)] as const));
  return Object.fromEntries(ends);
}

function validateExport(request: NewExport, now: Date): FieldError[] {
  const { startTimeMicros: start, endTimeMicros: end, intervalHours, exportFields } = request;
  const errors: FieldError[] = [];
  const addError = (field: string, type: string, msg: string) => errors.push({ loc: ['body', field], msg, type });
  const { fromMicros, untilMicrosExclusive } = allTimes;
  if (start < fromMicros || start >= untilMicrosExclusive) {
    addError('start_time', 'out_of_range', 'must lie between 1970 and 2260');
  } else if (intervalHours !== undefined && start < now.getTime() * 1_000 - maxDays * dayMicros) {
    // A schedule catches up on all past intervals, one after another.
    addError('start_time', 'out_of_range', `must lie at most ${maxDays} days ago`);
  }
  if (intervalHours === undefined && end === undefined) {
    addError('end_time', 'missing', 'is required if interval_hours is absent');
  } else if (intervalHours !== undefined && end !== undefined) {
    addError('end_time', 'not_allowed', 'must be absent if interval_hours is given');
  } else if (end !== undefined) {
    if (end <= start) addError('end_time', 'out_of_range', 'must be later than start_time');
    else if (end > untilMicrosExclusive) addError('end_time', 'out_of_range', 'must lie between 1970 and 2260');
    else if (end - start > maxDays * dayMicros) {
      addError('end_time', 'out_of_range', `must be at most ${maxDays} days after start_time`);
    }
  }
  if (exportFields?.length === 0) addError('export_fields', 'too_short', 'must name at least one field, or be absent');
  const { unknown } = resolveFields(exportFields);
  if (unknown.length > 0) {
    const names = unknown.slice(0, maxNamedFields).map((name) => `'${name}'`);
    const more = unknown.length > maxNamedFields ? ` and ${unknown.length - maxNamedFields} more` : '';
    addError('export_fields', 'unknown_field', `unknown field ${names.join(', ')}${more}`);
  }
  return errors;
}
