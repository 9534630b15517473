import type { ClickHouse, ExternalTable, QueryParameter } from '../../infra/clickhouse/clickhouse.ts';
import { readNullableTextRows } from '../../infra/clickhouse/row-binary.ts';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { reserveTexts } from '../../infra/fairness/tenant-context.ts';
import { requireWithin, splitIntoChunks } from '../../infra/postgres/page-within.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { liveCondition } from '../retention/lifetimes.ts';
import { toMicrosSql } from '../runs/run-columns.ts';
import { maxListedIds } from '../runs/run-scope.ts';
import { JsonChunks } from '../runs/write-runs.ts';
import type { FeedbackEvent } from './feedback-event.ts';
import { type FormatDeps, formatFeedback } from './format-feedback.ts';

const columns = {
  tenantId: 'tenant_id',
  runId: 'run_id',
  id: 'id',
  receivedAtMicros: toMicrosSql('received_at'),
  traceId: 'trace_id',
  projectId: 'session_id',
  startTimeMicros: toMicrosSql('start_time'),
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
  createdAtMicros: toMicrosSql('created_at'),
  modifiedAtMicros: toMicrosSql('modified_at'),
  deletedAtMicros: toMicrosSql('deleted_at'),
  keepsTrace: 'keeps_trace',
} as const satisfies Record<keyof FeedbackEvent, string>;

const names = Object.keys(columns) as (keyof FeedbackEvent)[];
const selectList = names.map((name) => `CAST(${columns[name]} AS Nullable(String))`).join(', ');

interface FeedbackConditions {
  /**
   * Conditions in addition to the condition on the workspace, joined by AND. They can bind any parameters except
   * `tenant`, `limit` and `offset`.
   */
  readonly sql: string;
  readonly params: Readonly<Record<string, QueryParameter>>;
  readonly externalTable?: ExternalTable | undefined;
}

interface FeedbackKey {
  readonly run_id: string;
  readonly id: string;
  /** Size of the wide columns. */
  readonly bytes: number;
}

const wideColumns = ['score', 'value', 'comment', 'correction', 'feedback_source', 'extra'];
const bytesSql = wideColumns.map((column) => `ifNull(length(${column}), 0)`).join(' + ');
const newestFirst = 'ORDER BY created_at DESC, id DESC';

/**
 * Finds a page of feedback of a workspace, newest first, excluding deleted feedback. The inner query selects the ids
 * from narrow columns, so that the wide columns are measured only for these ids.
 */
async function findFeedbackKeys(
  clickhouse: ClickHouse,
  tenantId: string,
  { sql, params, externalTable }: FeedbackConditions,
  { limitRows, offsetRows }: { readonly limitRows: number; readonly offsetRows: number },
): Promise<FeedbackKey[]> {
  return clickhouse.query<FeedbackKey>({
    name: 'find-feedback',
    sql: `SELECT run_id, id, ${bytesSql} AS bytes FROM feedback FINAL
          WHERE tenant_id = {tenant:UUID} AND ${liveCondition} AND (run_id, id) IN (
            SELECT run_id, id FROM feedback FINAL WHERE tenant_id = {tenant:UUID} AND ${liveCondition} AND (${sql})
            ${newestFirst} LIMIT {limit:UInt64} OFFSET {offset:UInt64})
          ${newestFirst}`,
    params: { ...params, tenant: tenantId, limit: limitRows, offset: offsetRows },
    externalTable,
  });
}

/** Reads the feedback with these keys, newest first, excluding deleted feedback. */
async function readEvents(
  clickhouse: ClickHouse,
  tenantId: string,
  keys: readonly FeedbackKey[],
): Promise<FeedbackEvent[]> {
  if (keys.length === 0) return [];
  const response = await clickhouse.queryText({
    name: 'read-feedback',
    sql: `SELECT ${selectList} FROM feedback FINAL
          WHERE tenant_id = {tenant:UUID} AND ${liveCondition} AND (run_id, id) IN (SELECT run_id, id FROM keys)
          ${newestFirst}`,
    params: { tenant: tenantId },
    externalTable: {
      name: 'keys',
      structure: 'run_id UUID, id UUID',
      rows: keys.map(({ run_id, id }) => [run_id, id]),
    },
    format: 'RowBinary',
  });
  return decodeEvents(response);
}

/**
 * Reads the last event of a feedback entry, which may be a deletion. Returns undefined if there is no event. An entry
 * that was moved to another run has a deletion with the same version.
 */
export async function findLastEvent(
  clickhouse: ClickHouse,
  tenantId: string,
  id: string,
): Promise<FeedbackEvent | undefined> {
  const response = await clickhouse.queryText({
    name: 'find-last-feedback-event',
    sql: `SELECT ${selectList} FROM feedback FINAL
          WHERE tenant_id = {tenant:UUID} AND id = {id:UUID} AND expires_at > now()
          ORDER BY version DESC, isNull(deleted_at) DESC LIMIT 1`,
    params: { tenant: tenantId, id },
    format: 'RowBinary',
  });
  return decodeEvents(response)[0];
}

function decodeEvents(response: Buffer): FeedbackEvent[] {
  return readNullableTextRows(response, names.length).map((values) => {
    const bytes = (name: keyof FeedbackEvent) => values[names.indexOf(name)];
    const text = (name: keyof FeedbackEvent) => bytes(name)?.toString('utf8');
    const number = (name: keyof FeedbackEvent) => {
      const digits = text(name);
      return digits === undefined ? undefined : Number(digits);
    };
    const error = text('error');
    const keepsTrace = text('keepsTrace');
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
      keepsTrace: keepsTrace === undefined ? undefined : keepsTrace === 'true',
    };
  });
}

export interface FeedbackFilter {
  readonly runIds?: readonly string[] | undefined;
  /** Trace of the feedback or, if the feedback has no trace, of its run. */
  readonly traceId?: string | undefined;
  readonly keys?: readonly string[] | undefined;
  /** Project of the feedback or, if the feedback has no project, of its run. */
  readonly projectIds?: readonly string[] | undefined;
  readonly sourceTypes?: readonly string[] | undefined;
  readonly userIds?: readonly string[] | undefined;
  readonly hasComment?: boolean | undefined;
  readonly hasScore?: boolean | undefined;
  readonly comparisonId?: string | undefined;
  /** Whether to select feedback on runs or on projects (sessions). */
  readonly level?: 'run' | 'session' | undefined;
  /** Inclusive start of the range of creation times. */
  readonly createdFromMicros?: number | undefined;
  readonly createdUntilMicros?: number | undefined;
}

interface ListDeps extends FormatDeps {
  readonly config: Pick<Config, 'maxPageBytes'>;
}

interface FeedbackQuery {
  readonly tenantId: string;
  readonly filter: FeedbackFilter;
  readonly limitRows: number;
  readonly offsetRows: number;
  readonly withUserNames: boolean;
  /** Whether to omit the users who sent the feedback. */
  readonly omitUsers?: boolean;
}

/**
 * Returns a page of feedback as a JSON array, newest first.
 *
 * @throws ANSWER_TOO_LARGE if the page has several entries and exceeds `maxPageBytes`; errors of the stores.
 */
export async function listFeedback(deps: ListDeps, query: FeedbackQuery): Promise<Buffer> {
  const { clickhouse, config } = deps;
  const keys = await findFeedbackKeys(clickhouse, query.tenantId, buildConditions(query.filter), query);
  const bytes = keys.reduce((sum, key) => sum + key.bytes, 0);
  requireWithin(keys.length, bytes, config.maxPageBytes);
  reserveTexts(bytes);
  const events = await readEvents(clickhouse, query.tenantId, keys);
  const json = new JsonChunks();
  let before = '[';
  for (const feedback of await formatFeedback(deps, query.tenantId, events, query)) {
    json.add(before);
    json.add(feedback);
    before = ',';
  }
  json.add(events.length === 0 ? '[]' : ']');
  return json.toBuffer();
}

const keysPerQuery = 1_000;

/**
 * Yields all matching feedback as JSON objects, newest first. At most `maxPageBytes` of it, or one entry, are in memory.
 *
 * @throws errors of the stores.
 */
export async function* readAllFeedback(
  deps: ListDeps,
  query: Omit<FeedbackQuery, 'limitRows' | 'offsetRows'>,
): AsyncGenerator<Buffer> {
  const conditions = buildConditions(query.filter);
  for (let offsetRows = 0; ; offsetRows += keysPerQuery) {
    const page = { limitRows: keysPerQuery, offsetRows };
    const keys = await findFeedbackKeys(deps.clickhouse, query.tenantId, conditions, page);
    for (const chunk of splitIntoChunks(keys, deps.config.maxPageBytes)) {
      const events = await readEvents(deps.clickhouse, query.tenantId, chunk);
      yield* await formatFeedback(deps, query.tenantId, events, query);
    }
    if (keys.length < keysPerQuery) return;
  }
}

/**
 * Selects feedback by project. Feedback without a project belongs to the project of its run. The inner subquery limits
 * the lookup to runs that have feedback without a project.
 */
const buildProjectsSql = (projects: string) =>
  `session_id IN ${projects} OR (isNull(session_id) AND run_id IN (
  SELECT id FROM run_locator WHERE tenant_id = {tenant:UUID}
  AND id IN (SELECT run_id FROM feedback WHERE tenant_id = {tenant:UUID} AND isNull(session_id))
  GROUP BY id HAVING min(pick).5 IN ${projects}))`;

/** Like {@link buildProjectsSql}, but selects feedback by trace. */
const traceCondition = `trace_id = {trace:UUID} OR (isNull(trace_id) AND run_id IN (
  SELECT id FROM run_locator WHERE tenant_id = {tenant:UUID}
  AND id IN (SELECT run_id FROM feedback WHERE tenant_id = {tenant:UUID} AND isNull(trace_id))
  GROUP BY id HAVING min(pick).3 = {trace:UUID}))`;

function buildConditions(filter: FeedbackFilter): FeedbackConditions {
  const sql: string[] = ['true'];
  const params: Record<string, QueryParameter> = {};
  const add = (condition: string, name: string, value: QueryParameter | undefined) => {
    if (value === undefined) return;
    sql.push(`(${condition})`);
    params[name] = value;
  };
  add('run_id IN {runs:Array(UUID)}', 'runs', filter.runIds);
  add('key IN {keys:Array(String)}', 'keys', filter.keys);
  add(traceCondition, 'trace', filter.traceId);
  const { projectIds } = filter;
  let externalTable: ExternalTable | undefined;
  if (projectIds !== undefined && projectIds.length > maxListedIds) {
    sql.push(`(${buildProjectsSql('projects')})`);
    externalTable = { name: 'projects', structure: 'project_id UUID', rows: projectIds.map((id) => [id]) };
  } else add(buildProjectsSql('{projects:Array(UUID)}'), 'projects', projectIds);
  add('comparative_experiment_id = {comparison:UUID}', 'comparison', filter.comparisonId);
  add('source_type IN {sources:Array(String)}', 'sources', filter.sourceTypes);
  add('user_id IN {users:Array(UUID)}', 'users', filter.userIds);
  add('isNotNull(comment) = {hasComment:Bool}', 'hasComment', filter.hasComment);
  add('isNotNull(score) = {hasScore:Bool}', 'hasScore', filter.hasScore);
  add(`(run_id = '${nilUuid}') = {onProject:Bool}`, 'onProject', filter.level && filter.level === 'session');
  add('created_at >= fromUnixTimestamp64Micro({from:Int64})', 'from', filter.createdFromMicros);
  add('created_at <= fromUnixTimestamp64Micro({until:Int64})', 'until', filter.createdUntilMicros);
  return { sql: sql.join(' AND '), params, externalTable };
}

/**
 * Reads a feedback entry as JSON.
 *
 * @throws NOT_FOUND if the workspace has no feedback with this id; errors of the stores.
 */
export async function getFeedback(
  deps: FormatDeps,
  { tenantId, id, withUserNames }: { readonly tenantId: string; readonly id: string; readonly withUserNames: boolean },
): Promise<Buffer> {
  const last = await findLastEvent(deps.clickhouse, tenantId, id);
  if (last === undefined || last.deletedAtMicros !== undefined)
    throw runlakeError('NOT_FOUND', { what: `Feedback ${id}` });
  const [json] = await formatFeedback(deps, tenantId, [last], { withUserNames });
  return json as Buffer;
}
