import { Readable } from 'node:stream';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { createChunkMemory } from '../../infra/fairness/tenant-context.ts';
import type { PageRequest } from '../../infra/postgres/list-page.ts';
import { readAverageScores } from '../feedback/feedback-stats.ts';
import { parseTime } from '../ingest/run-event/times.ts';
import { toUniqueIds } from '../ingest/run-event/uuid.ts';
import type { RunCondition } from '../runs/filter/sql-terms.ts';
import type { ReadDeps } from '../runs/locate-run.ts';
import { readAllRuns, readEachRun, tryReadEachRun, v2Envelope } from '../runs/query-runs.ts';
import { selectFields, selectV2Fields } from '../runs/run-select.ts';
import { buildMatchingRuns } from '../runs/stats/matching-runs.ts';
import type { Selection } from '../runs/write-runs.ts';
import { allExampleFields, type ExampleField, type ExampleLinkDeps } from './example.ts';
import { countExamples, listExampleIds, readExamples } from './read-examples.ts';
import { readNewestVersionTime, requireDataset } from './versions.ts';

interface ExperimentQuery extends PageRequest {
  readonly datasetId: string;
  /** Ids of experiments on the dataset. */
  readonly projectIds: readonly string[];
  readonly exampleIds?: readonly string[] | undefined;
  /** Time of the version to read. Default: the newest version. */
  readonly asOf?: string | undefined;
  /** Conditions by experiment. Only examples are read that have, in each of these experiments, a run that satisfies them. */
  readonly filters?: ExperimentFilters | undefined;
  /** Default: the newest examples first. */
  readonly sort?: ScoreOrder | undefined;
}

/**
 * Order of the examples by the average score of the feedback with one key on their runs in the only experiment of the
 * query. Examples without a score come last, and those with the same score are ordered from the newest to the oldest.
 */
export interface ScoreOrder {
  readonly feedbackKey: string;
  readonly descending: boolean;
  /** If present, only feedback of this comparative experiment counts. */
  readonly comparisonId?: string | undefined;
}

export type ExperimentFilters = ReadonlyMap<string, readonly RunCondition[]>;

interface ExampleSelection {
  /** Fields of the runs to return. Default: as in run queries. */
  readonly selected?: Selection;
  /** Fields of the examples to return. Default: all. */
  readonly fields?: ReadonlySet<ExampleField>;
}

/**
 * Reads a page of the examples of a dataset as a JSON array. The member `runs` of each example contains its runs in the
 * given experiments, with their feedback. Only root runs count, as in the statistics of an experiment: clients may also
 * name the example in the runs below.
 *
 * @throws NOT_FOUND for an unknown dataset, or for a project that is not an experiment on it; BAD_REQUEST if the runs
 *   of one example are too large, or if several experiments are to be sorted; errors of the stores.
 */
export async function readExamplesWithRuns(
  deps: ReadDeps,
  workspaceId: string,
  query: ExperimentQuery,
  links: ExampleLinkDeps,
  { selected = selectFields(undefined), fields = allExampleFields }: ExampleSelection = {},
): Promise<Buffer | Readable> {
  await requireExperiments(deps.database, workspaceId, query);
  const ids = await findFilteredExamples(deps, workspaceId, query);
  return readPage(deps, workspaceId, { ...query, ids }, links, { selected, fields });
}

/** @throws NOT_FOUND for an unknown dataset, or for a project that is not an experiment on it. */
async function requireExperiments(
  database: ReadDeps['database'],
  workspaceId: string,
  { datasetId, projectIds }: Pick<ExperimentQuery, 'datasetId' | 'projectIds'>,
): Promise<void> {
  await requireDataset(database, workspaceId, datasetId);
  const experimentIds = toUniqueIds(projectIds);
  const experiments = await database.query(
    `SELECT FROM projects WHERE workspace_id = $1 AND reference_dataset_id = $2 AND id = ANY ($3::uuid[])
       AND deleted_at IS NULL`,
    [workspaceId, datasetId, experimentIds],
  );
  if (experiments.length < experimentIds.length) throw runlakeError('NOT_FOUND', { what: 'Session' });
}

interface ExamplePage extends Omit<ExperimentQuery, 'exampleIds' | 'filters'> {
  /** Default: all examples. */
  readonly ids: readonly string[] | undefined;
}

/** Reads a page of examples with their runs, as a JSON array. */
async function readPage(
  deps: ReadDeps,
  tenantId: string,
  { projectIds, sort, ...page }: ExamplePage,
  links: ExampleLinkDeps,
  { selected, fields }: Required<ExampleSelection>,
): Promise<Buffer | Readable> {
  const experimentIds = toUniqueIds(projectIds);
  const listed =
    sort === undefined
      ? ({ ...page, order: 'recent' } as const)
      : await findSortedPage(deps, tenantId, { ...page, projectIds: experimentIds }, sort);
  const runInChunk = createChunkMemory();
  return readExamples(deps.database, tenantId, { ...listed, fields }, links, (exampleIds) =>
    runInChunk(() => readRunsByExample(deps, { tenantId, projectIds: experimentIds, exampleIds }, selected)),
  );
}

/** Maximum number of runs whose examples are read at once. */
const runsPerFilterRead = 10_000;
const referenceExample = selectFields(['reference_example_id']);

/** Returns the requested examples that satisfy the filters of a query; undefined if it requests all. */
async function findFilteredExamples(
  deps: ReadDeps,
  tenantId: string,
  { exampleIds, filters = new Map() }: Pick<ExperimentQuery, 'exampleIds' | 'filters'>,
): Promise<readonly string[] | undefined> {
  const requested = exampleIds && toUniqueIds(exampleIds);
  let found = requested;
  for (const [projectId, conditions] of filters) {
    const matched = { run: conditions, trace: [], tree: [] };
    const filter = { isRoot: true, conditions: matched, referenceExampleIds: requested };
    const query = { tenantId, projectIds: [projectId], filter, selected: referenceExample, order: 'desc' } as const;
    const matching = new Set<string>();
    for await (const run of readAllRuns<{ reference_example_id: string | null }>(deps, {
      ...query,
      limitRows: runsPerFilterRead,
    })) {
      if (run.reference_example_id !== null) matching.add(run.reference_example_id);
    }
    found = found?.filter((id) => matching.has(id)) ?? [...matching];
  }
  return found;
}

/** Finds the examples of a page that is ordered by score. @throws BAD_REQUEST if there are several experiments. */
async function findSortedPage(
  { clickhouse, database }: ReadDeps,
  tenantId: string,
  { datasetId, projectIds, ids, asOf: requested, limit, offset }: ExamplePage,
  { feedbackKey, descending, comparisonId }: ScoreOrder,
) {
  if (projectIds.length > 1) {
    throw runlakeError('BAD_REQUEST', { reason: 'Examples can be sorted by the scores of one experiment only.' });
  }
  const asOf = requested ?? (await readNewestVersionTime(database, tenantId, datasetId));
  const { sql, ...runs } = buildMatchingRuns({ scope: { tenantId, projectIds }, filter: { isRoot: true } }, [
    'id AS run_id',
    `ifNull(toString(reference_example_id), '') AS target`,
  ]);
  const [found, scores] = await Promise.all([
    listExampleIds(database, tenantId, { datasetId, ids, asOf }),
    readAverageScores(clickhouse, { ...runs, runs: `(${sql})` }, { key: feedbackKey, comparisonId }),
  ]);
  // Scores are looked up once, not in each comparison, which would block the event loop for seconds.
  const scored: { readonly id: string; readonly score: number }[] = [];
  const others: string[] = [];
  for (const id of found) {
    const score = scores.get(id);
    if (score === undefined) others.push(id);
    else scored.push({ id, score });
  }
  scored.sort((a, b) => (descending ? b.score - a.score : a.score - b.score));
  const sorted = [...scored.map(({ id }) => id), ...others];
  const page = sorted.slice(offset, offset + limit);
  return { datasetId, ids: page, asOf, order: 'given', limit, offset: 0 } as const;
}

interface V2ExperimentQuery extends Omit<ExperimentQuery, 'offset' | 'asOf'> {
  readonly selects: readonly string[];
  readonly cursor?: string | undefined;
}

/**
 * Like {@link readExamplesWithRuns}, but returns a page in the format of version 2 of the API. All pages read the
 * dataset version that was the newest when the first page was read.
 *
 * @throws also BAD_REQUEST for an invalid cursor.
 */
export async function readV2ExamplesWithRuns(
  deps: ReadDeps,
  workspaceId: string,
  { selects, cursor, ...query }: V2ExperimentQuery,
  links: ExampleLinkDeps,
): Promise<Readable> {
  const { datasetId, limit } = query;
  const { offset, asOf } =
    cursor === undefined
      ? { offset: 0, asOf: await readNewestVersionTime(deps.database, workspaceId, datasetId) }
      : readExampleCursor(cursor);
  // Always select REFERENCE_EXAMPLE_ID, which assigns each run to its example.
  const selected = selectV2Fields([...new Set(['ID', ...selects, 'REFERENCE_EXAMPLE_ID'])]);
  await requireExperiments(deps.database, workspaceId, query);
  const ids = await findFilteredExamples(deps, workspaceId, query);
  const page = { ...query, ids, asOf, offset };
  const items = await readPage(deps, workspaceId, page, links, { selected, fields: allExampleFields });
  const count = await countExamples(deps.database, workspaceId, { datasetId, ids, asOf });
  const next = offset + limit < count ? encodeExampleCursor({ offset: offset + limit, asOf }) : null;
  return Readable.from(
    (async function* () {
      yield '{"items":';
      if (Buffer.isBuffer(items)) yield items;
      else yield* items;
      yield v2Envelope.after(next);
    })(),
  );
}

interface ExampleCursor {
  readonly offset: number;
  readonly asOf: string;
}

const encodeExampleCursor = ({ offset, asOf }: ExampleCursor) => Buffer.from(`${offset} ${asOf}`).toString('base64url');

function readExampleCursor(text: string): ExampleCursor {
  const [, offset, asOf = ''] = /^(\d{1,9}) (\S{20,40})$/.exec(Buffer.from(text, 'base64url').toString()) ?? [];
  if (offset === undefined || parseTime(asOf) === undefined) {
    throw runlakeError('BAD_REQUEST', { reason: 'The cursor is malformed.' });
  }
  return { offset: Number(offset), asOf };
}

interface ExampleRunsScope {
  readonly tenantId: string;
  readonly projectIds: readonly string[];
  readonly exampleIds: readonly string[];
}

/**
 * Returns the JSON text `,"runs":[…]` for each example, by example id; undefined if the runs of several examples are too
 * large together.
 *
 * @throws BAD_REQUEST if the runs of one example are too large; errors of the stores.
 */
async function readRunsByExample(
  deps: ReadDeps,
  { tenantId, projectIds, exampleIds }: ExampleRunsScope,
  selected: Selection,
): Promise<ReadonlyMap<string, string> | undefined> {
  const filter = { isRoot: true, referenceExampleIds: exampleIds };
  const query = { tenantId, projectIds, filter, selected, order: 'asc' } as const;
  const read = await (exampleIds.length > 1 ? tryReadEachRun : readEachRun)(deps, query);
  if (read === undefined) return undefined;
  const runs = new Map<string, string[]>(exampleIds.map((id) => [id, []]));
  for (const { row, json } of read) {
    runs.get(row.text('referenceExampleId') ?? '')?.push(json);
  }
  return new Map([...runs].map(([id, list]) => [id, `,"runs":[${list.join(',')}]`]));
}
