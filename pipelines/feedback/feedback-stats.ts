import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { liveCondition } from '../retention/lifetimes.ts';

/** Maximum number and size of the comments and labels in the statistics of one key of one run. */
const maxComments = 10;
const maxCommentBytes = 2_000;
const maxLabels = 100;
const maxLabelBytes = 1_000;

interface FiguresRow {
  readonly run_id: string;
  readonly key: string;
  readonly n: number;
  readonly avg: number | null;
  readonly min: number | null;
  readonly max: number | null;
  readonly stdev: number | null;
  readonly errors: number;
  readonly sources: readonly string[];
  /** JSON strings. */
  readonly comments: readonly string[];
}

interface LabelRow {
  readonly run_id: string;
  readonly key: string;
  /** A JSON string. */
  readonly value: string;
  readonly n: number;
}

const currentFeedbackSql = `SELECT * FROM feedback FINAL
  WHERE tenant_id = {tenant:UUID} AND run_id IN runs AND ${liveCondition}`;

/**
 * Statistics of the feedback on each of `runIds`, as JSON objects by run: feedback key → `n` (number of feedbacks),
 * `avg`, `min`, `max`, `stdev` (of the population, over scores; true is 1, false is 0), `errors`, `values` (label →
 * count, for values that are strings), `comments` and `sources`. Runs without feedback are omitted.
 *
 * @throws errors of ClickHouse.
 */
export async function feedbackStats(
  clickhouse: ClickHouse,
  tenantId: string,
  runIds: readonly string[],
): Promise<Map<string, string>> {
  if (runIds.length === 0) return new Map();
  const location = {
    params: { tenant: tenantId },
    external: { name: 'runs', structure: 'run_id UUID', rows: [...new Set(runIds)].map((id) => [id]) },
  };
  const [figures, labels] = await Promise.all([
    clickhouse.query<FiguresRow>({
      ...location,
      name: 'feedback-figures',
      sql: `SELECT run_id, key, count() AS n, avg(number) AS avg, min(number) AS min, max(number) AS max,
              stddevPop(number) AS stdev, countIf(error = true) AS errors,
              arraySort(groupUniqArray(10)(source_type)) AS sources,
              groupArrayIf(${maxComments})(comment, length(comment) <= ${maxCommentBytes}) AS comments
            FROM (SELECT *, multiIf(score = 'true', 1., score = 'false', 0., toFloat64OrNull(score)) AS number
                  FROM (${currentFeedbackSql}) ORDER BY created_at DESC, id)
            GROUP BY run_id, key ORDER BY run_id, key`,
    }),
    clickhouse.query<LabelRow>({
      ...location,
      name: 'feedback-labels',
      sql: `SELECT run_id, key, value, count() AS n FROM (${currentFeedbackSql})
            WHERE startsWith(value, '"') AND length(value) <= ${maxLabelBytes}
            GROUP BY run_id, key, value ORDER BY n DESC, value LIMIT ${maxLabels} BY run_id, key`,
    }),
  ]);
  const counts = countLabels(labels);
  const members = new Map<string, string[]>();
  for (const row of figures) {
    const list = members.get(row.run_id) ?? [];
    members.set(row.run_id, list);
    list.push(`${JSON.stringify(row.key)}:${formatStats(row, counts.get(row.run_id + row.key) ?? new Map())}`);
  }
  return new Map([...members].map(([runId, list]) => [runId, `{${list.join(',')}}`]));
}

/**
 * Counts the labels by run and key. The labels are parsed first, because equal labels may be stored with and without
 * escapes.
 */
function countLabels(rows: readonly LabelRow[]): Map<string, Map<string, number>> {
  const counts = new Map<string, Map<string, number>>();
  for (const { run_id, key, value, n } of rows) {
    const labels = counts.get(run_id + key) ?? new Map<string, number>();
    counts.set(run_id + key, labels);
    const label = JSON.parse(value) as string;
    labels.set(label, (labels.get(label) ?? 0) + n);
  }
  return counts;
}

/**
 * Formats the statistics as JSON text. The labels are not put into a JavaScript object, because a label may be any
 * string, including `__proto__`.
 */
function formatStats(
  { comments, run_id: _run, key: _key, ...figures }: FiguresRow,
  labels: Map<string, number>,
): string {
  const values = [...labels].map(([label, n]) => `${JSON.stringify(label)}:${n}`).join(',');
  const rest = JSON.stringify({ ...figures, contains_thread_feedback: false }).slice(1);
  return `{"values":{${values}},"comments":[${comments.join(',')}],${rest}`;
}
