import { randomUUID } from 'node:crypto';
import { type FieldFault, fault } from '../../infra/errors/runlake-error.ts';
import { feedbackEvents, runEvents } from '../../schemas/topics.ts';
import { formatTimeWithZone } from '../ingest/run-event/times.ts';
import { liveProjectIds } from '../runs/live-projects.ts';
import { allTimes } from '../runs/run-key.ts';
import { enqueueExport } from './enqueue.ts';
import { fieldsAsked } from './export-fields.ts';
import type { ExportPorts } from './export-ports.ts';
import type { ExportFormat } from './export-scope.ts';
import { insertExport } from './insert-export.ts';
import { type ExportWithProgress, readExport } from './read-export.ts';
import { requireRoom } from './require-room.ts';

export interface NewExport {
  readonly destinationId: string;
  readonly projectId: string;
  readonly startTimeMicros: number;
  /** Exclusive. Undefined for a schedule. */
  readonly endTimeMicros: number | undefined;
  readonly intervalHours: number | undefined;
  readonly formatVersion: ExportFormat['version'];
  readonly compression: ExportFormat['compression'];
  /** Undefined: all that there are. */
  readonly exportFields: readonly string[] | undefined;
}

const dayMicros = 86_400_000_000;
/** Of unknown fields, in an answer. */
const mostNamed = 5;

/**
 * Makes an export, or a schedule where it has an interval. Who belongs to it is fixed now: runs first received until the
 * creation, give or take the clocks of processes. Where the event log ends is noted after that time, so that every run that was
 * accepted before lies before it. An export is queued at once.
 *
 * @throws INVALID_REQUEST that names the fields; LIMIT_REACHED; NOT_FOUND where the workspace lacks the project or the destination; what log
 * and database throw.
 */
export async function createExport(
  ports: ExportPorts,
  owner: { readonly workspaceId: string; readonly keyId: string },
  asked: NewExport,
): Promise<ExportWithProgress> {
  const faults = faultsOf(asked, ports.limits.exportMaxDays, ports.now());
  if (faults.length > 0) throw fault('INVALID_REQUEST', {}, { fields: faults });
  const { workspaceId } = owner;
  const { database, limits } = ports;
  const [project] = await liveProjectIds(database, workspaceId, [asked.projectId]);
  if (project === undefined) throw fault('NOT_FOUND', { what: 'Session' });

  const id = randomUUID();
  const createdAt = ports.now();
  const schedule = asked.intervalHours !== undefined;
  const logPosition = schedule ? null : await positionOf(ports);
  await database.transaction(async (tx) => {
    // Held against a deletion of the destination that goes on at the same time.
    const [destination] = await tx.query(
      `SELECT FROM bulk_export_destinations WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL FOR SHARE`,
      [asked.destinationId, workspaceId],
    );
    if (destination === undefined) throw fault('NOT_FOUND', { what: 'Bulk export destination' });
    await insertExport(tx, {
      id,
      workspaceId,
      destinationId: asked.destinationId,
      projectId: project,
      createdByKeyId: owner.keyId,
      startTime: formatTimeWithZone(asked.startTimeMicros),
      endTime: asked.endTimeMicros === undefined ? null : formatTimeWithZone(asked.endTimeMicros),
      intervalHours: asked.intervalHours ?? null,
      formatVersion: asked.formatVersion,
      compression: asked.compression,
      exportFields: asked.exportFields === undefined ? null : [...new Set(asked.exportFields)],
      sourceExportId: null,
      logPosition,
      createdAt,
      membersUntil: new Date(createdAt.getTime() + limits.exportClockSkewMs),
    });
    await requireRoom(tx, workspaceId, schedule, limits);
  });
  if (!schedule) await enqueueExport(ports, id);
  return readExport(database, workspaceId, id);
}

/** Ends of the topics whose events an export shows, by topic. */
export async function positionOf({ log }: Pick<ExportPorts, 'log'>) {
  const topics = [runEvents, feedbackEvents];
  const ends = await Promise.all(topics.map(async (topic) => [topic.name, await log.position(topic)] as const));
  return Object.fromEntries(ends);
}

function faultsOf(asked: NewExport, maxDays: number, now: Date): FieldFault[] {
  const { startTimeMicros: start, endTimeMicros: end, intervalHours, exportFields } = asked;
  const faults: FieldFault[] = [];
  const refuse = (field: string, type: string, msg: string) => faults.push({ loc: ['body', field], msg, type });
  const { fromMicros, untilMicrosExclusive } = allTimes;
  if (start < fromMicros || start >= untilMicrosExclusive) {
    refuse('start_time', 'out_of_range', 'must lie between 1970 and 2260');
  } else if (intervalHours !== undefined && start < now.getTime() * 1_000 - maxDays * dayMicros) {
    // All its intervals are made up for, one after another.
    refuse('start_time', 'out_of_range', `must lie at most ${maxDays} days ago (RUNLAKE_EXPORT_MAX_DAYS)`);
  }
  if (intervalHours === undefined && end === undefined) {
    refuse('end_time', 'missing', 'is required where interval_hours is absent');
  } else if (intervalHours !== undefined && end !== undefined) {
    refuse('end_time', 'not_allowed', 'must be absent where interval_hours is given');
  } else if (end !== undefined) {
    if (end <= start) refuse('end_time', 'out_of_range', 'must be later than start_time');
    else if (end > untilMicrosExclusive) refuse('end_time', 'out_of_range', 'must lie between 1970 and 2260');
    else if (end - start > maxDays * dayMicros) {
      refuse('end_time', 'out_of_range', `must be at most ${maxDays} days after start_time (RUNLAKE_EXPORT_MAX_DAYS)`);
    }
  }
  if (exportFields?.length === 0) refuse('export_fields', 'too_short', 'must name at least one field, or be absent');
  const { unknown } = fieldsAsked(exportFields);
  if (unknown.length > 0) {
    const names = unknown.slice(0, mostNamed).map((name) => `'${name}'`);
    const more = unknown.length > mostNamed ? ` and ${unknown.length - mostNamed} more` : '';
    refuse('export_fields', 'unknown_field', `there is no field ${names.join(', ')}${more}`);
  }
  return faults;
}
