import type { Readable } from 'node:stream';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { PageRequest } from '../../infra/postgres/list-page.ts';
import { findPath } from '../ingest/json/find.ts';
import { scanJson } from '../ingest/json/scan.ts';
import { toUniqueIds } from '../ingest/run-event/uuid.ts';
import { queryRuns, type ReadDeps, type RunQuery, v1Envelope } from '../runs/query-runs.ts';
import { selectFields } from '../runs/run-select.ts';
import { type ExampleLinks, selectableFields } from './example.ts';
import { readExamples } from './read-examples.ts';
import { requireDataset } from './versions.ts';

interface ExperimentQuery extends PageRequest {
  readonly datasetId: string;
  /** Experiments on the dataset. */
  readonly projectIds: readonly string[];
  readonly exampleIds?: readonly string[] | undefined;
}

/**
 * Reads a page of the newest examples of a dataset as a JSON array. Each example has `runs`: its runs in the given
 * experiments, with their feedback.
 *
 * @throws NOT_FOUND for an unknown dataset, or a project that is no experiment on it; BAD_REQUEST if the runs of the
 *   page are too large; errors of the stores.
 */
export async function readExamplesWithRuns(
  deps: ReadDeps,
  workspaceId: string,
  { datasetId, projectIds, exampleIds, limit, offset }: ExperimentQuery,
  links: ExampleLinks,
): Promise<Buffer | Readable> {
  await requireDataset(deps.database, workspaceId, datasetId);
  const experimentIds = toUniqueIds(projectIds);
  const experiments = await deps.database.query(
    `SELECT FROM projects WHERE workspace_id = $1 AND reference_dataset_id = $2 AND id = ANY ($3::uuid[])
       AND deleted_at IS NULL`,
    [workspaceId, datasetId, experimentIds],
  );
  if (experiments.length < experimentIds.length) throw runlakeError('NOT_FOUND', { what: 'Session' });
  const fields = new Set(selectableFields);
  const query = { datasetId, ids: exampleIds, order: 'recent', fields, limit, offset } as const;
  return readExamples(deps.database, workspaceId, query, links, (ids) =>
    readRunsOf(deps, workspaceId, experimentIds, ids),
  );
}

const runsPerQuery = 100;
/** Maximum size of the runs that are in memory for one response. */
const maxBytes = 64 * 1024 * 1024;

/** Returns `,"runs":[…]` for each example. */
async function readRunsOf(
  deps: ReadDeps,
  tenantId: string,
  projectIds: readonly string[],
  exampleIds: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const runs = new Map<string, string[]>(exampleIds.map((id) => [id, []]));
  let bytes = 0;
  let cursor: string | undefined;
  do {
    const query: RunQuery = {
      tenantId,
      projectIds,
      filter: { referenceExampleIds: exampleIds },
      selected: selectFields(undefined),
      order: 'asc',
      limitRows: runsPerQuery,
      cursor,
    };
    const page = await queryRuns(deps, query, v1Envelope);
    bytes += page.length;
    if (bytes > maxBytes) {
      throw runlakeError('BAD_REQUEST', { reason: 'The runs of these examples are too large; send a smaller limit.' });
    }
    for (const { exampleId, json } of splitRuns(page)) runs.get(exampleId)?.push(json);
    const next = findPath(page, 0, page.length, ['cursors', 'next']);
    cursor = (next && (JSON.parse(page.toString('utf8', next.start, next.end)) as string | null)) ?? undefined;
  } while (cursor !== undefined);
  return new Map([...runs].map(([id, list]) => [id, `,"runs":[${list.join(',')}]`]));
}

/** Returns each run of a page as it is in the page, because stored JSON must not be formatted again. */
function splitRuns(page: Buffer): { exampleId: string; json: string }[] {
  const runs: { exampleId: string; json: string }[] = [];
  const list = findPath(page, 0, page.length, ['runs']);
  if (list === undefined) return runs;
  scanJson(page, list.start, list.end, { part: 'runs', maxDepth: Infinity }, (_, start, end) => {
    const id = findPath(page, start, end, ['reference_example_id']);
    if (id?.kind !== 'string') return;
    runs.push({ exampleId: page.toString('utf8', id.start + 1, id.end - 1), json: page.toString('utf8', start, end) });
  });
  return runs;
}
