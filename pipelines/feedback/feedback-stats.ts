import type { ClickHouse, Query } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import { reserveTexts } from '../../infra/fairness/tenant-context.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { buildLiveCondition, liveCondition } from '../retention/lifetimes.ts';

/** Limits on the number and size of the comments and labels in the statistics of one feedback key of one run. */
const maxComments = 10;
const maxCommentBytes = 2_000;
const maxLabels = 100;
const maxLabelBytes = 1_000;

/** SQL: approximate size of an entry in statistics. They keep at most 10 comments of a key, so this may be too high. */
export const shownFeedbackBytes = `200 + if(length(comment) <= ${maxCommentBytes}, length(comment), 0)
  + if(length(value) <= ${maxLabelBytes}, length(value), 0)`;

/** SQL: score of feedback as a number; true counts as 1 and false as 0. Null if there is none. */
export const scoreSql = `multiIf(score = 'true', 1., score = 'false', 0., toFloat64OrNull(score))`;

/**
 * SQL: an aggregate of the scores in `number`. Sums and squares of huge scores would exceed the range of numbers, so these
 * are scaled with a power of two, which is exact. ClickHouse would move the factor out of `avg`, but not out of
 * `avgOrNull`.
 */
const aggregateScores = (aggregate: string, number: string) =>
  `if(max(abs(${number})) > 1e100, ${aggregate}(${number} * ${2 ** -600}) * ${2 ** 600}, ${aggregate}(${number}))`;

interface FiguresRow {
  readonly target: string;
  readonly key: string;
  readonly n: number;
  readonly avg: number | null;
  readonly min: number | null;
  readonly max: number | null;
  readonly stdev: number | null;
  readonly errors: number;
  /** Number of feedback entries whose value is a label. */
  readonly labels: number;
  readonly sources: readonly string[];
  /** Comments as JSON strings. */
  readonly comments: readonly string[];
}

interface LabelRow {
  readonly target: string;
  readonly key: string;
  /** Label as a JSON string. */
  readonly value: string;
  readonly n: number;
}

/** Current feedback on the runs of a table or subquery, with their targets. */
const buildRunFeedbackSql = (runs: string) => `SELECT feedback.*, runs.target AS target FROM (
    SELECT * FROM feedback FINAL WHERE tenant_id = {tenant:UUID} AND ${liveCondition}) AS feedback
  INNER JOIN ${runs} AS runs ON runs.run_id = feedback.run_id`;
const labelCondition = `startsWith(ifNull(value, ''), '"') AND length(value) <= ${maxLabelBytes}`;

/**
 * Reads statistics of the feedback on `runIds`. Returns a JSON object for each run, which maps each feedback key to `n`
 * (number of feedback entries), `avg`, `min`, `max`, `stdev` (sample standard deviation), `errors`, `values` (label
 * → count, for values that are strings), `comments` and `sources`. `avg`, `min`, `max` and `stdev` are computed from
 * the scores; true counts as 1 and false as 0. Runs without feedback are omitted.
 *
 * @param comparisonId If set, only feedback of this comparative experiment is included.
 * @param expiredAfterMicros If set, feedback that expired after this time is included.
 * @throws errors of ClickHouse.
 */
export async function readFeedbackStatsByRun(
  clickhouse: ClickHouse,
  tenantId: string,
  runIds: readonly string[],
  { comparisonId, expiredAfterMicros }: { readonly comparisonId?: string; readonly expiredAfterMicros?: number } = {},
): Promise<Map<string, string>> {
  if (runIds.length === 0) return new Map();
  const externalTable = { name: 'rated', structure: 'run_id UUID', rows: [...new Set(runIds)].map((id) => [id]) };
  const params = {
    tenant: tenantId,
    ...(comparisonId !== undefined && { comparison: comparisonId }),
    ...(expiredAfterMicros !== undefined && { live_at: expiredAfterMicros }),
  };
  const comparisonCondition = comparisonId === undefined ? '' : 'AND comparative_experiment_id = {comparison:UUID}';
  const lifetimeCondition = expiredAfterMicros === undefined ? liveCondition : buildLiveCondition('live_at');
  const condition = `tenant_id = {tenant:UUID} AND run_id IN rated ${comparisonCondition}`;
  const location = { params, externalTable, settings: lookupSettings, shardTables: ['feedback'] };
  // Most pages of runs have no feedback. Planning the figures takes three times as long as this query.
  const [stored] = await clickhouse.query({
    ...location,
    name: 'stored-feedback',
    sql: `SELECT run_id FROM {stored_feedback:Identifier} WHERE ${condition} LIMIT 1`,
  });
  if (stored === undefined) return new Map();
  const sql = `SELECT *, run_id AS target FROM {stored_feedback:Identifier} FINAL
    WHERE ${condition} AND ${lifetimeCondition}`;
  return summarise(clickhouse, location, sql);
}

interface FeedbackQuery extends Pick<Query, 'params' | 'externalTable' | 'settings'> {
  /** A table or subquery with the columns `run_id` and `target`. */
  readonly runs: string;
}

/**
 * Like {@link readFeedbackStatsByRun}, but computes the statistics for each target, from the feedback on all its runs.
 */
export async function readFeedbackStatsByTarget(
  clickhouse: ClickHouse,
  { runs, ...location }: FeedbackQuery,
): Promise<Map<string, string>> {
  return summarise(clickhouse, location, buildRunFeedbackSql(runs));
}

/**
 * Like {@link readFeedbackStatsByRun}, but computes the statistics for each comparative experiment, from its feedback.
 */
export async function readFeedbackStatsByComparison(
  clickhouse: ClickHouse,
  tenantId: string,
  comparisonIds: readonly string[],
): Promise<Map<string, string>> {
  if (comparisonIds.length === 0) return new Map();
  const location = { params: { tenant: tenantId, comparisons: comparisonIds } };
  const sql = `SELECT *, toString(comparative_experiment_id) AS target FROM feedback FINAL
    WHERE tenant_id = {tenant:UUID} AND comparative_experiment_id IN {comparisons:Array(UUID)} AND ${liveCondition}`;
  return summarise(clickhouse, location, sql);
}

/**
 * Like {@link readFeedbackStatsByRun}, but from the feedback on each project itself, such as that of summary evaluators,
 * and without the feedback on its runs.
 */
export async function readFeedbackStatsByProject(
  clickhouse: ClickHouse,
  tenantId: string,
  projectIds: readonly string[],
): Promise<Map<string, string>> {
  if (projectIds.length === 0) return new Map();
  const externalTable = { name: 'rated', structure: 'session_id UUID', rows: projectIds.map((id) => [id]) };
  const location = { params: { tenant: tenantId }, externalTable, settings: lookupSettings };
  const sql = `SELECT *, toString(session_id) AS target FROM feedback FINAL
    WHERE tenant_id = {tenant:UUID} AND run_id = '${nilUuid}' AND session_id IN (SELECT session_id FROM rated) AND ${liveCondition}`;
  return summarise(clickhouse, location, sql);
}

/**
 * Reads the average score of the feedback with one key, by target, from the feedback on all its runs. Targets without a
 * score are omitted.
 *
 * @param feedback.comparisonId If set, only feedback of this comparative experiment is included.
 */
export async function readAverageScores(
  clickhouse: ClickHouse,
  { runs, params, ...location }: FeedbackQuery,
  { key, comparisonId }: { readonly key: string; readonly comparisonId?: string | undefined },
): Promise<Map<string, number>> {
  const comparisonCondition = comparisonId === undefined ? '' : 'AND comparative_experiment_id = {comparison:UUID}';
  const rows = await clickhouse.query<{ target: string; average: number }>({
    ...location,
    params: { ...params, feedback_key: key, ...(comparisonId !== undefined && { comparison: comparisonId }) },
    name: 'average-scores',
    sql: `SELECT target, ${aggregateScores('avgOrNull', scoreSql)} AS average FROM (${buildRunFeedbackSql(runs)})
          WHERE key = {feedback_key:String} ${comparisonCondition} AND isNotNull(${scoreSql})
          GROUP BY target`,
  });
  return new Map(rows.map(({ target, average }) => [target, average]));
}

/**
 * Computes the statistics of the feedback that a query selects, grouped by the column `target`.
 *
 * @throws OVERLOADED if there is no memory for their comments and labels; errors of ClickHouse.
 */
async function summarise(
  clickhouse: ClickHouse,
  location: Pick<Query, 'params' | 'externalTable' | 'settings' | 'shardTables'>,
  feedbackSql: string,
): Promise<Map<string, string>> {
  const figures = await clickhouse.query<FiguresRow>({
    ...location,
    name: 'feedback-figures',
    sql: `SELECT target, key, count() AS n, ${aggregateScores('avgOrNull', 'number')} AS avg, min(number) AS min, max(number) AS max,
            ${aggregateScores('stddevSampStable', 'number')} AS stdev, countIf(error = true) AS errors, countIf(${labelCondition}) AS labels,
            arraySort(groupUniqArray(10)(source_type)) AS sources,
            groupArrayIf(${maxComments})(comment, length(comment) <= ${maxCommentBytes}) AS comments
          FROM (SELECT *, ${scoreSql} AS number
                FROM (${feedbackSql}) ORDER BY created_at DESC, id)
          GROUP BY target, key ORDER BY target, key`,
  });
  const labels = figures.every((row) => row.labels === 0)
    ? []
    : await clickhouse.query<LabelRow>({
        ...location,
        name: 'feedback-labels',
        sql: `SELECT target, key, value, count() AS n FROM (${feedbackSql}) WHERE ${labelCondition}
              GROUP BY target, key, value ORDER BY n DESC, value LIMIT ${maxLabels} BY target, key`,
      });
  const counts = countLabels(labels);
  const members = new Map<string, string[]>();
  for (const row of figures) {
    const list = members.get(row.target) ?? [];
    members.set(row.target, list);
    list.push(
      `${JSON.stringify(row.key)}:${formatStats(row, counts.get(JSON.stringify([row.target, row.key])) ?? new Map())}`,
    );
  }
  reserveTexts([...members.values()].flat().reduce((size, { length }) => size + length, 0));
  return new Map([...members].map(([runId, list]) => [runId, `{${list.join(',')}}`]));
}

/**
 * Counts the labels by target and key. The labels are parsed first, because the same label may be stored both with and
 * without escapes.
 */
function countLabels(rows: readonly LabelRow[]): Map<string, Map<string, number>> {
  const counts = new Map<string, Map<string, number>>();
  for (const { target, key, value, n } of rows) {
    const id = JSON.stringify([target, key]);
    const labels = counts.get(id) ?? new Map<string, number>();
    counts.set(id, labels);
    const label = JSON.parse(value) as string;
    labels.set(label, (labels.get(label) ?? 0) + n);
  }
  return counts;
}

/**
 * Formats the statistics as JSON text. The labels are not used as keys of a JavaScript object, because a label may be
 * any string, including `__proto__`.
 */
function formatStats(
  { comments, target: _target, key: _key, labels: _labels, ...figures }: FiguresRow,
  labels: Map<string, number>,
): string {
  const values = [...labels].map(([label, n]) => `${JSON.stringify(label)}:${n}`).join(',');
  const rest = JSON.stringify({ ...figures, contains_thread_feedback: false }).slice(1);
  return `{"values":{${values}},"comments":[${comments.join(',')}],${rest}`;
}
