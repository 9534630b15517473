import type { QueryParameter } from '../../infra/clickhouse/clickhouse.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { JsonChunks } from '../runs/write-runs.ts';
import { type FeedbackConditions, findFeedback } from './find-feedback.ts';
import { type ShowDeps, showFeedback } from './show-feedback.ts';

export interface FeedbackFilter {
  readonly runIds?: readonly string[] | undefined;
  readonly keys?: readonly string[] | undefined;
  /** Project of the feedback, or of its run if the feedback has none. */
  readonly projectIds?: readonly string[] | undefined;
  readonly sourceTypes?: readonly string[] | undefined;
  readonly userIds?: readonly string[] | undefined;
  readonly hasComment?: boolean | undefined;
  readonly hasScore?: boolean | undefined;
  /** Feedback on runs, or on projects. */
  readonly level?: 'run' | 'session' | undefined;
  /** Inclusive. */
  readonly createdFromMicros?: number | undefined;
  readonly createdUntilMicros?: number | undefined;
}

export interface FeedbackQuery {
  readonly tenantId: string;
  readonly filter: FeedbackFilter;
  readonly limitRows: number;
  readonly offsetRows: number;
  readonly withUserNames: boolean;
}

/** A page of feedback as a JSON list, newest first. @throws errors of the stores. */
export async function listFeedback(deps: ShowDeps, query: FeedbackQuery): Promise<Buffer> {
  const events = await findFeedback(deps.clickhouse, query.tenantId, buildConditions(query.filter), query);
  const json = new JsonChunks();
  let before = '[';
  for (const feedback of await showFeedback(deps, query.tenantId, events, query)) {
    json.add(before);
    json.add(feedback);
    before = ',';
  }
  json.add(events.length === 0 ? '[]' : ']');
  return json.toBuffer();
}

/**
 * Feedback without a project belongs to the project of its run. The inner list restricts the lookup to the runs concerned.
 */
const inProjects = `session_id IN {projects:Array(UUID)} OR (isNull(session_id) AND run_id IN (
  SELECT id FROM run_locator FINAL WHERE tenant_id = {tenant:UUID} AND session_id IN {projects:Array(UUID)}
  AND id IN (SELECT run_id FROM feedback WHERE tenant_id = {tenant:UUID} AND isNull(session_id))))`;

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
  add(inProjects, 'projects', filter.projectIds);
  add('source_type IN {sources:Array(String)}', 'sources', filter.sourceTypes);
  add('user_id IN {users:Array(UUID)}', 'users', filter.userIds);
  add('isNotNull(comment) = {hasComment:Bool}', 'hasComment', filter.hasComment);
  add('isNotNull(score) = {hasScore:Bool}', 'hasScore', filter.hasScore);
  add(`(run_id = '${nilUuid}') = {onProject:Bool}`, 'onProject', filter.level && filter.level === 'session');
  add('created_at >= fromUnixTimestamp64Micro({from:Int64})', 'from', filter.createdFromMicros);
  add('created_at <= fromUnixTimestamp64Micro({until:Int64})', 'until', filter.createdUntilMicros);
  return { sql: sql.join(' AND '), params };
}
