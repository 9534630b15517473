import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { formatTimeWithZone } from '../ingest/run-event/times.ts';
import { type LocatedRun, locateRuns } from '../runs/locate-run.ts';
import { selectRoots } from '../runs/trace-roots.ts';
import { JsonChunks } from '../runs/write-runs.ts';
import type { FeedbackEvent } from './feedback-event.ts';
import { readSourceMetadata } from './feedback-values.ts';

export interface FormatDeps {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
}

/** Data that is read in addition to the feedback events: the stored runs and, if requested, the names of users. */
interface RelatedData {
  readonly runs: ReadonlyMap<string, LocatedRun>;
  /** Ids of those runs that are roots of their traces. */
  readonly roots: ReadonlySet<string>;
  readonly userNames: ReadonlyMap<string, string>;
  readonly omitUsers: boolean;
}

/**
 * Formats feedback entries as JSON objects. Values are returned byte for byte as they were sent. Trace, project and
 * start time default to those of the run, once the run is stored.
 */
export async function formatFeedback(
  { clickhouse, database }: FormatDeps,
  tenantId: string,
  events: readonly FeedbackEvent[],
  { withUserNames, omitUsers = false }: { readonly withUserNames: boolean; readonly omitUsers?: boolean },
): Promise<Buffer[]> {
  const [located, userNames] = await Promise.all([
    locateRuns(
      clickhouse,
      tenantId,
      events.flatMap(({ runId }) => (runId === nilUuid ? [] : runId)),
    ),
    withUserNames ? readUserNames(database, tenantId, events) : new Map<string, string>(),
  ]);
  const runs = new Map(located.map((run) => [run.runId, run]));
  const roots = await selectRoots(clickhouse, tenantId, located);
  return events.map((event) => formatEntry(event, { runs, roots, userNames, omitUsers }));
}

async function readUserNames(database: Database, workspaceId: string, events: readonly FeedbackEvent[]) {
  const rows = await database.query<{ id: string; name: string }>(
    `SELECT users.id, coalesce(users.full_name, users.email) AS name
     FROM users JOIN workspaces USING (organization_id)
     WHERE workspaces.id = $1 AND users.id = ANY ($2::uuid[])`,
    [workspaceId, [...new Set(events.map(({ userId }) => userId))]],
    { name: 'names-of-feedback-users' },
  );
  return new Map(rows.map(({ id, name }) => [id, name]));
}

function formatEntry(event: FeedbackEvent, { runs, roots, userNames, omitUsers }: RelatedData): Buffer {
  const run = runs.get(event.runId);
  const traceId = event.traceId ?? run?.traceId;
  const fields: Readonly<Record<string, string | Buffer | undefined>> = {
    id: quote(event.id),
    key: quote(event.key),
    score: event.score,
    value: event.value,
    comment: event.comment,
    correction: event.correction,
    run_id: event.runId === nilUuid ? undefined : quote(event.runId),
    trace_id: quote(traceId),
    session_id: quote(event.projectId ?? run?.projectId),
    start_time: formatOptionalTime(event.startTimeMicros ?? run?.startTimeMicros),
    is_root: String(event.runId !== nilUuid && (traceId === event.runId || roots.has(event.runId))),
    feedback_source: formatSource(event, userNames.get(event.userId), omitUsers),
    feedback_group_id: quote(event.groupId),
    comparative_experiment_id: quote(event.comparativeExperimentId),
    extra: event.extra,
    error: event.error === undefined ? undefined : String(event.error),
    feedback_thread_id: undefined,
    created_at: formatOptionalTime(event.createdAtMicros),
    modified_at: formatOptionalTime(event.modifiedAtMicros),
  };
  return formatObject(fields);
}

function formatSource(
  { sourceType, source, userId }: FeedbackEvent,
  userName: string | undefined,
  omitUser: boolean,
): Buffer {
  const user = omitUser ? undefined : quote(userId);
  return formatObject({
    type: quote(sourceType),
    metadata: source && readSourceMetadata(source),
    user_id: user,
    ls_user_id: user,
    user_name: quote(userName),
  });
}

function formatObject(fields: Readonly<Record<string, string | Buffer | undefined>>): Buffer {
  const json = new JsonChunks();
  let before = '{';
  for (const [name, value] of Object.entries(fields)) {
    json.add(`${before}"${name}":`);
    json.add(value ?? 'null');
    before = ',';
  }
  json.add('}');
  return json.toBuffer();
}

function quote(text: string | undefined): string | undefined {
  return text === undefined ? undefined : JSON.stringify(text);
}

function formatOptionalTime(micros: number | undefined): string | undefined {
  return micros === undefined ? undefined : `"${formatTimeWithZone(micros)}"`;
}
