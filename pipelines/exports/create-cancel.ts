import { randomUUID } from 'node:crypto';
import { type FieldError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { createOrFind } from '../../infra/postgres/database-error.ts';
import { feedbackEvents, runEvents } from '../../schemas/topics.ts';
import { formatTimeWithZone } from '../ingest/run-event/times.ts';
import { parseRunFilters } from '../runs/filter/run-filter.ts';
import { readLiveProjectIds } from '../runs/locate-run.ts';
import { allTimes } from '../runs/run-columns.ts';
import { enforceLimit } from '../tenants/enforce-limit.ts';
import { type ExportDeps, type ExportLimits, readClock } from './export-deps.ts';
import { type ExportWithProgress, readExport } from './queries.ts';
import { type ExportFormat, type ExportRecord, resolveFields } from './record.ts';
import { enqueueExport, finishExport } from './states.ts';

/**
 * Runs that are received up to this long after the creation of an export are included, because the clocks of Postgres
 * and of the processes that receive runs may differ.
 */
const clockSkewMs = 1_000;

interface ExportToInsert
  extends Pick<ExportRecord, 'id' | 'workspaceId' | 'destinationId' | 'projectId' | 'startTime' | 'endTime' | 'filter'>,
    Pick<ExportRecord, 'intervalHours' | 'formatVersion' | 'compression' | 'exportFields' | 'sourceExportId'>,
    Pick<ExportRecord, 'logPosition'> {
  readonly createdByKeyId: string | null;
  readonly createdAt: Date;
}

/**
 * Inserts the row of an export with status CREATED, or the row of a schedule with status RUNNING.
 *
 * @returns whether the row was inserted; false if the schedule has already spawned this interval.
 */
export async function insertExport(sql: Sql, row: ExportToInsert): Promise<boolean> {
  const isSchedule = row.intervalHours !== null;
  const createdAt = row.createdAt.toISOString();
  const added = await sql.execute(
    `INSERT INTO bulk_exports (id, workspace_id, destination_id, project_id, created_by_key_id, start_time, end_time,
       interval_hours, format, format_version, compression, export_fields, status, status_reason, source_bulk_export_id,
       next_start_time, log_position, members_until, started_at, filter, created_at, updated_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'Parquet', $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $20)
     ON CONFLICT (source_bulk_export_id, start_time) DO NOTHING`,
    [
      row.id,
      row.workspaceId,
      row.destinationId,
      row.projectId,
      row.createdByKeyId,
      row.startTime,
      row.endTime,
      row.intervalHours,
      row.formatVersion,
      row.compression,
      row.exportFields,
      isSchedule ? 'RUNNING' : 'CREATED',
      isSchedule
        ? 'The schedule creates an export for each interval.'
        : 'Waiting for `runlake exports` or `runlake all`, and until all events accepted earlier are stored.',
      row.sourceExportId,
      isSchedule ? row.startTime : null,
      row.logPosition,
      new Date(row.createdAt.getTime() + clockSkewMs).toISOString(),
      isSchedule ? createdAt : null,
      row.filter,
      createdAt,
    ],
  );
  return added > 0;
}

const countUnfinishedSql = `SELECT count(*) AS count FROM bulk_exports AS e JOIN workspaces AS w ON w.id = e.workspace_id
  WHERE w.organization_id = $1 AND e.finished_at IS NULL`;

/**
 * Checks the limit of the organisation after an export or schedule was inserted. If the limit is exceeded, the error
 * rolls the transaction back.
 *
 * @throws LIMIT_REACHED
 */
async function requireExportQuota(
  tx: Sql,
  workspaceId: string,
  schedule: boolean,
  { exportMaxSchedules, exportMaxUnfinished }: Pick<ExportLimits, 'exportMaxSchedules' | 'exportMaxUnfinished'>,
): Promise<void> {
  if (schedule) {
    const countSql = `${countUnfinishedSql} AND e.interval_hours IS NOT NULL`;
    await enforceLimit(tx, 'organizationOfWorkspace', workspaceId, {
      max: exportMaxSchedules,
      countSql,
      what: 'scheduled bulk exports',
      hint: 'Cancel those that are not needed',
    });
    return;
  }
  const countSql = `${countUnfinishedSql} AND e.interval_hours IS NULL AND e.source_bulk_export_id IS NULL`;
  await enforceLimit(tx, 'organizationOfWorkspace', workspaceId, {
    max: exportMaxUnfinished,
    countSql,
    what: 'bulk exports that are not finished',
    hint: 'Wait until some of them have ended, or cancel them',
  });
}

export interface NewExport {
  readonly destinationId: string;
  readonly projectId: string;
  readonly startTimeMicros: number;
  /** Exclusive end of the time range. Undefined for a schedule. */
  readonly endTimeMicros: number | undefined;
  readonly intervalHours: number | undefined;
  readonly formatVersion: ExportFormat['version'];
  readonly compression: ExportFormat['compression'];
  /** Fields to export. If undefined, all fields are exported. */
  readonly exportFields: readonly string[] | undefined;
  /** Condition on runs, in the filter language. */
  readonly filter?: string | undefined;
}

const dayMicros = 86_400_000_000;
/** Maximum time range of one export in days: ten years, which is longer than the tables keep runs. */
const maxDays = 3_660;
/** Maximum number of unknown fields that are named in an error. */
const maxNamedFields = 5;

/**
 * Creates an export, or a schedule if `intervalHours` is given. The members are determined at creation: they are the
 * runs that were first received up to the creation time plus the allowed clock skew. The log-end offsets are read after
 * the creation time, so that the export waits for every run that was accepted before its creation. An export is queued
 * at once; a schedule is not queued.
 *
 * @throws INVALID_REQUEST with the invalid fields; INVALID_FILTER; LIMIT_REACHED; NOT_FOUND if the workspace has no
 *   such project or destination; errors of the log and the database.
 */
export async function createExport(
  deps: ExportDeps,
  owner: { readonly workspaceId: string; readonly keyId: string },
  request: NewExport,
): Promise<ExportWithProgress> {
  const errors = validateExport(request, await readClock(deps));
  parseRunFilters({ filter: request.filter ?? null });
  if (errors.length > 0) throw runlakeError('INVALID_REQUEST', {}, { fields: errors });
  const { workspaceId } = owner;
  const { database, limits } = deps;
  const [project] = await readLiveProjectIds(database, workspaceId, [request.projectId]);
  if (project === undefined) throw runlakeError('NOT_FOUND', { what: 'Session' });

  const id = randomUUID();
  const createdAt = await readClock(deps);
  const isSchedule = request.intervalHours !== undefined;
  const logPosition = isSchedule ? null : await readLogEndOffsets(deps);
  const insert = async (tx: Sql) => {
    // The lock ensures that a concurrent deletion of the destination waits.
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
      filter: request.filter ?? null,
      sourceExportId: null,
      logPosition,
      createdAt,
    });
    await requireExportQuota(tx, workspaceId, isSchedule, limits);
  };
  const read = () => readExport(database, workspaceId, id);
  const created = await createOrFind(() => database.transaction(insert).then(read), read);
  if (!isSchedule) await enqueueExport(deps, id);
  return created;
}

/** Reads the log-end offsets of the topics whose events an export contains, keyed by topic name. */
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
    // A schedule catches up on all intervals in the past, one after another.
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

/**
 * Cancels an export or a schedule and its unfinished export runs. Workers notice the cancellation within two seconds.
 * Exports that a schedule has already spawned continue. Cancelling a cancelled export has no effect.
 *
 * @throws NOT_FOUND; EXPORT_FINISHED if the export ended in another state.
 */
export async function cancelExport(
  deps: ExportDeps,
  workspaceId: string,
  exportId: string,
): Promise<ExportWithProgress> {
  const { database } = deps;
  await readExport(database, workspaceId, exportId);
  await finishExport(deps, exportId, { to: 'CANCELLED', reason: 'It was cancelled.' });
  const now = await readExport(database, workspaceId, exportId);
  if (now.status !== 'CANCELLED') throw runlakeError('EXPORT_FINISHED', { status: now.status });
  return now;
}
