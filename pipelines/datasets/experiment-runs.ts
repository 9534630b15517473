import { Readable } from 'node:stream';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { PageRequest } from '../../infra/postgres/list-page.ts';
import { findPath } from '../ingest/json/find.ts';
import { scanJson } from '../ingest/json/scan.ts';
import { parseTime } from '../ingest/run-event/times.ts';
import { toUniqueIds } from '../ingest/run-event/uuid.ts';
import {
  type PageEnvelope,
  queryRuns,
  type ReadDeps,
  type RunQuery,
  v1Envelope,
  v2Envelope,
} from '../runs/query-runs.ts';
import { type Selection, selectFields, selectV2Fields } from '../runs/run-select.ts';
import { type ExampleLinks, selectableFields } from './example.ts';
import { countExamples, readExamples } from './read-examples.ts';
import { readNewestTime, requireDataset } from './versions.ts';

interface ExperimentQuery extends PageRequest {
  readonly datasetId: string;
  /** Experiments on the dataset. */
  readonly projectIds: readonly string[];
  readonly exampleIds?: readonly string[] | undefined;
  /** A time; default: the newest version. */
  readonly asOf?: string | undefined;
}

/** How runs are written. */
interface RunForm {
  readonly selected: Selection;
  readonly envelope: PageEnvelope;
  /** Where a page of the envelope has its runs, and the cursor of the next page. */
  readonly list: string;
  readonly next: readonly string[];
}

const v1Form = (): RunForm => ({
  selected: selectFields(undefined),
  envelope: v1Envelope,
  list: 'runs',
  next: ['cursors', 'next'],
});

/** Runs of version 2 with the selected fields, and always the id of their example. */
const v2Form = (selects: readonly string[]): RunForm => ({
  selected: selectV2Fields([...new Set(['ID', ...selects, 'REFERENCE_EXAMPLE_ID'])]),
  envelope: v2Envelope,
  list: 'items',
  next: ['next_cursor'],
});

/**
 * Reads a page of the examples of a dataset as a JSON array. Each example has `runs`: its runs in the given
 * experiments, with their feedback.
 *
 * @throws NOT_FOUND for an unknown dataset, or a project that is no experiment on it; BAD_REQUEST if the runs of the
 *   page are too large; errors of the stores.
 */
export async function readExamplesWithRuns(
  deps: ReadDeps,
  workspaceId: string,
  query: ExperimentQuery,
  links: ExampleLinks,
  form: RunForm = v1Form(),
): Promise<Buffer | Readable> {
  const { datasetId, projectIds, exampleIds, asOf, limit, offset } = query;
  await requireDataset(deps.database, workspaceId, datasetId);
  const experimentIds = toUniqueIds(projectIds);
  const experiments = await deps.database.query(
    `SELECT FROM projects WHERE workspace_id = $1 AND reference_dataset_id = $2 AND id = ANY ($3::uuid[])
       AND deleted_at IS NULL`,
    [workspaceId, datasetId, experimentIds],
  );
  if (experiments.length < experimentIds.length) throw runlakeError('NOT_FOUND', { what: 'Session' });
  const fields = new Set(selectableFields);
  const page = { datasetId, ids: exampleIds, asOf, order: 'recent', fields, limit, offset } as const;
  return readExamples(deps.database, workspaceId, page, links, (ids) =>
    readRunsOf(deps, { tenantId: workspaceId, projectIds: experimentIds, exampleIds: ids }, form),
  );
}

interface V2Query extends Omit<ExperimentQuery, 'offset' | 'asOf'> {
  readonly selects: readonly string[];
  readonly cursor?: string | undefined;
}

/**
 * Like {@link readExamplesWithRuns}, as a page of version 2. All pages are of the version that is the newest one when
 * the first page is read.
 *
 * @throws also BAD_REQUEST for an invalid cursor.
 */
export async function readV2ExamplesWithRuns(
  deps: ReadDeps,
  workspaceId: string,
  { selects, cursor, ...query }: V2Query,
  links: ExampleLinks,
): Promise<Readable> {
  const { datasetId, exampleIds, limit } = query;
  const { offset, asOf } =
    cursor === undefined
      ? { offset: 0, asOf: await readNewestTime(deps.database, workspaceId, datasetId) }
      : readExampleCursor(cursor);
  const items = await readExamplesWithRuns(deps, workspaceId, { ...query, asOf, offset }, links, v2Form(selects));
  const count = await countExamples(deps.database, workspaceId, { datasetId, ids: exampleIds, asOf });
  const next = offset + limit < count ? writeExampleCursor({ offset: offset + limit, asOf }) : null;
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

const writeExampleCursor = ({ offset, asOf }: ExampleCursor) => Buffer.from(`${offset} ${asOf}`).toString('base64url');

function readExampleCursor(text: string): ExampleCursor {
  const [, offset, asOf = ''] = /^(\d{1,9}) (\S{20,40})$/.exec(Buffer.from(text, 'base64url').toString()) ?? [];
  if (offset === undefined || parseTime(asOf) === undefined) {
    throw runlakeError('BAD_REQUEST', { reason: 'The cursor is malformed.' });
  }
  return { offset: Number(offset), asOf };
}

const runsPerQuery = 100;
/** Maximum size of the runs that are in memory for one response. */
const maxBytes = 64 * 1024 * 1024;

interface RunsOfExamples {
  readonly tenantId: string;
  readonly projectIds: readonly string[];
  readonly exampleIds: readonly string[];
}

/** Returns `,"runs":[…]` for each example. */
async function readRunsOf(
  deps: ReadDeps,
  { tenantId, projectIds, exampleIds }: RunsOfExamples,
  form: RunForm,
): Promise<ReadonlyMap<string, string>> {
  const runs = new Map<string, string[]>(exampleIds.map((id) => [id, []]));
  let bytes = 0;
  let cursor: string | undefined;
  do {
    const query: RunQuery = {
      tenantId,
      projectIds,
      filter: { referenceExampleIds: exampleIds },
      selected: form.selected,
      order: 'asc',
      limitRows: runsPerQuery,
      cursor,
    };
    const page = await queryRuns(deps, query, form.envelope);
    bytes += page.length;
    if (bytes > maxBytes) {
      throw runlakeError('BAD_REQUEST', { reason: 'The runs of these examples are too large; send a smaller limit.' });
    }
    for (const { exampleId, json } of splitRuns(page, form.list)) runs.get(exampleId)?.push(json);
    const next = findPath(page, 0, page.length, form.next);
    cursor = (next && (JSON.parse(page.toString('utf8', next.start, next.end)) as string | null)) ?? undefined;
  } while (cursor !== undefined);
  return new Map([...runs].map(([id, list]) => [id, `,"runs":[${list.join(',')}]`]));
}

/** Returns each run of a page as it is in the page, because stored JSON must not be formatted again. */
function splitRuns(page: Buffer, name: string): { exampleId: string; json: string }[] {
  const runs: { exampleId: string; json: string }[] = [];
  const list = findPath(page, 0, page.length, [name]);
  if (list === undefined) return runs;
  scanJson(page, list.start, list.end, { part: 'runs', maxDepth: Infinity }, (_, start, end) => {
    const id = findPath(page, start, end, ['reference_example_id']);
    if (id?.kind !== 'string') return;
    runs.push({ exampleId: page.toString('utf8', id.start + 1, id.end - 1), json: page.toString('utf8', start, end) });
  });
  return runs;
}
