import type { ClickHouse, QueryParameter } from '../../infra/clickhouse/clickhouse.ts';
import { readNullableTextRows } from '../../infra/clickhouse/nullable-text-rows.ts';
import type { FeedbackEvent } from './feedback-event.ts';

const micros = (time: string) => `toUnixTimestamp64Micro(${time})`;

const columns = {
  tenantId: 'tenant_id',
  runId: 'run_id',
  id: 'id',
  receivedAtMicros: micros('received_at'),
  traceId: 'trace_id',
  projectId: 'session_id',
  startTimeMicros: micros('start_time'),
  key: 'key',
  score: 'score',
  value: 'value',
  comment: 'comment',
  correction: 'correction',
  sourceType: 'source_type',
  source: 'feedback_source',
  groupId: 'feedback_group_id',
  comparativeExperimentId: 'comparative_experiment_id',
  extra: 'extra',
  error: 'error',
  userId: 'user_id',
  createdAtMicros: micros('created_at'),
  modifiedAtMicros: micros('modified_at'),
  deletedAtMicros: micros('deleted_at'),
} as const satisfies Record<keyof FeedbackEvent, string>;

const names = Object.keys(columns) as (keyof FeedbackEvent)[];
const select = names.map((name) => `CAST(${columns[name]} AS Nullable(String))`).join(', ');

export interface FeedbackConditions {
  /**
   * Conditions in addition to the one on the workspace, joined by AND. They may bind any parameters except `tenant`,
   * `limit` and `offset`.
   */
  readonly sql: string;
  readonly params: Readonly<Record<string, QueryParameter>>;
}

/**
 * Feedback of a workspace that is not deleted, newest first. The inner query selects the ids from narrow columns; the
 * wide columns are then read only for those.
 */
export async function findFeedback(
  clickhouse: ClickHouse,
  tenantId: string,
  { sql, params }: FeedbackConditions,
  { limitRows, offsetRows }: { readonly limitRows: number; readonly offsetRows: number },
): Promise<FeedbackEvent[]> {
  const order = 'ORDER BY created_at DESC, id DESC';
  const answer = await clickhouse.queryText({
    name: 'find-feedback',
    sql: `SELECT ${select} FROM feedback FINAL
          WHERE tenant_id = {tenant:UUID} AND isNull(deleted_at) AND (run_id, id) IN (
            SELECT run_id, id FROM feedback FINAL WHERE tenant_id = {tenant:UUID} AND isNull(deleted_at) AND (${sql})
            ${order} LIMIT {limit:UInt64} OFFSET {offset:UInt64})
          ${order}`,
    params: { ...params, tenant: tenantId, limit: limitRows, offset: offsetRows },
    format: 'RowBinary',
  });
  return decodeEvents(answer);
}

/** The last event of one feedback, which may be its deletion; undefined if there is none. */
export async function findLastEvent(
  clickhouse: ClickHouse,
  tenantId: string,
  id: string,
): Promise<FeedbackEvent | undefined> {
  const answer = await clickhouse.queryText({
    name: 'find-last-feedback-event',
    sql: `SELECT ${select} FROM feedback FINAL WHERE tenant_id = {tenant:UUID} AND id = {id:UUID}
          ORDER BY received_at DESC LIMIT 1`,
    params: { tenant: tenantId, id },
    format: 'RowBinary',
  });
  return decodeEvents(answer)[0];
}

function decodeEvents(answer: Buffer): FeedbackEvent[] {
  return readNullableTextRows(answer, names.length).map((values) => {
    const bytes = (name: keyof FeedbackEvent) => values[names.indexOf(name)];
    const text = (name: keyof FeedbackEvent) => bytes(name)?.toString('utf8');
    const number = (name: keyof FeedbackEvent) => {
      const digits = text(name);
      return digits === undefined ? undefined : Number(digits);
    };
    const error = text('error');
    return {
      tenantId: text('tenantId') ?? '',
      runId: text('runId') ?? '',
      id: text('id') ?? '',
      receivedAtMicros: number('receivedAtMicros') ?? 0,
      traceId: text('traceId'),
      projectId: text('projectId'),
      startTimeMicros: number('startTimeMicros'),
      key: text('key') ?? '',
      score: bytes('score'),
      value: bytes('value'),
      comment: bytes('comment'),
      correction: bytes('correction'),
      sourceType: text('sourceType') ?? '',
      source: bytes('source'),
      groupId: text('groupId'),
      comparativeExperimentId: text('comparativeExperimentId'),
      extra: bytes('extra'),
      error: error === undefined ? undefined : error === 'true',
      userId: text('userId') ?? '',
      createdAtMicros: number('createdAtMicros') ?? 0,
      modifiedAtMicros: number('modifiedAtMicros') ?? 0,
      deletedAtMicros: number('deletedAtMicros'),
    };
  });
}
