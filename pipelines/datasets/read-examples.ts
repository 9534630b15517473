import type { Readable } from 'node:stream';
import { type Expression, type SqlBool, sql } from 'kysely';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { reserveTexts } from '../../infra/fairness/tenant-context.ts';
import { streamJsonArray } from '../../infra/json/stream-array.ts';
import type { Database, Sql } from '../../infra/postgres/database.ts';
import {
  containsPairs,
  countRows,
  fetchRows,
  isOneOf,
  limitToPage,
  type PageRequest,
  statements,
} from '../../infra/postgres/list-page.ts';
import { splitIntoChunks } from '../../infra/postgres/page-within.ts';
import { runSearch, type SearchClient } from '../../infra/postgres/run-search.ts';
import { runInTimeSlices, type StepwiseWork } from '../../infra/timeouts/time-slices.ts';
import { type ExampleField, type ExampleLinkDeps, type ExampleRow, formatExample } from './example.ts';
import { type ExampleCondition, writeExampleCondition } from './example-filter.ts';
import { isValidAt, resolveAsOf } from './versions.ts';

export const exampleOrders = ['recent', 'recently_created', 'id', 'random'] as const;

/** Filter for examples. At least one of `datasetId` and `ids` must be present. */
export interface ExampleFilter extends SearchClient {
  readonly datasetId?: string | undefined;
  readonly ids?: readonly string[] | undefined;
  /** Version to read: a time, a tag of the dataset, or `latest`. */
  readonly asOf?: string | undefined;
  /** Whether a read waits for a concurrent write; see `resolveAsOf`. Default: true. */
  readonly waits?: boolean | undefined;
  /** Selects examples that are in at least one of these splits. */
  readonly splits?: readonly string[] | undefined;
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
  /** Texts that must all occur in the JSON of the inputs or outputs, ignoring case. */
  readonly texts?: readonly string[] | undefined;
  readonly condition?: ExampleCondition | undefined;
}

export interface ExampleQuery extends ExampleFilter, PageRequest {
  /** Order of the examples. `given` is the order of `ids`. */
  readonly order: (typeof exampleOrders)[number] | 'given';
  readonly descending?: boolean | undefined;
  readonly randomSeed?: number | undefined;
  readonly fields: ReadonlySet<ExampleField>;
}

/** Runs a statement for examples, as a search if it reads the content of all examples of a dataset. */
function runStatement<Result>(database: Database, filter: ExampleFilter, run: (sql: Sql) => Promise<Result>) {
  const { condition, texts, metadata, splits } = filter;
  const isSearch = [condition, texts, metadata, splits].some((each) => each !== undefined);
  return isSearch ? runSearch(database, filter, run) : run(database);
}

/** Identifies one immutable state of an example. */
export interface ExampleKey {
  readonly dataset_id: string;
  readonly id: string;
  readonly valid_from: string;
  /** Size of the content in a response; see {@link contentBytesSql}. */
  readonly bytes: number;
}

/** The link to an attachment is about four times as long as its stored location. */
export const contentBytesSql = `octet_length(inputs) + coalesce(octet_length(outputs), 0) + octet_length(metadata)
  + 4 * octet_length(attachments::text)`;

/** Builds the query for the examples that match a filter. @throws BAD_REQUEST, NOT_FOUND */
async function selectExamples(database: Sql, workspaceId: string, filter: ExampleFilter) {
  const { datasetId, ids, splits, metadata, texts, condition } = filter;
  if (datasetId === undefined && (ids === undefined || ids.length === 0)) {
    throw runlakeError('BAD_REQUEST', { reason: 'Send the parameter dataset or id.' });
  }
  const asOf = await resolveFilter(database, workspaceId, filter);
  return statements.selectFrom('examples').where((example) => {
    const conditions: Expression<SqlBool>[] = [isValidAt(example, asOf)];
    if (datasetId !== undefined) conditions.push(example('dataset_id', '=', datasetId));
    else conditions.push(example('workspace_id', '=', workspaceId));
    if (ids) conditions.push(isOneOf(example.ref('id'), ids, 'uuid'));
    if (splits) conditions.push(sql<SqlBool>`searchable -> 'dataset_split' ?| ${splits}::text[]`);
    if (metadata) conditions.push(containsPairs(example.ref('searchable'), metadata));
    for (const text of texts ?? []) {
      conditions.push(sql<SqlBool>`strpos(lower(inputs || coalesce(outputs, '')), lower(${text}::text)) > 0`);
    }
    if (condition) conditions.push(writeExampleCondition(condition));
    return example.and(conditions);
  });
}

async function resolveFilter(database: Sql, workspaceId: string, { datasetId, ids, asOf, waits }: ExampleFilter) {
  if (datasetId !== undefined) return resolveAsOf(database, workspaceId, datasetId, asOf, waits);
  if (asOf === undefined) return undefined;
  const datasets = await database.query<{ id: string }>(
    'SELECT DISTINCT dataset_id AS id FROM examples WHERE workspace_id = $1 AND id = ANY ($2::uuid[])',
    [workspaceId, ids],
  );
  const times = new Set<string | undefined>();
  for (const { id } of datasets) times.add(await resolveAsOf(database, workspaceId, id, asOf));
  if (times.size > 1) throw runlakeError('BAD_REQUEST', { reason: 'A tag needs the parameter dataset.' });
  return [...times][0];
}

type OrderOptions = Pick<ExampleQuery, 'ids' | 'randomSeed'>;

const orderExpressions = {
  recent: () => sql.ref('valid_from'),
  recently_created: () => sql.ref('created_at'),
  id: () => sql.ref('id'),
  random: ({ randomSeed = 0 }: OrderOptions) => sql`md5(id::text || ${String(randomSeed)}::text)`,
  given: ({ ids }: OrderOptions) => sql`array_position(${ids}::uuid[], id)`,
};

/**
 * Finds a page of examples. In the default order it reads only columns of the index `examples_by_version`, so that
 * reading a late page of a large dataset does not read the content of all earlier examples.
 */
async function findExampleKeys(database: Database, workspaceId: string, query: ExampleQuery): Promise<ExampleKey[]> {
  const { order, descending = order === 'recent' || order === 'recently_created' } = query;
  const by = [orderExpressions[order](query), sql.ref('id')];
  const filteredExamples = await selectExamples(database, workspaceId, query);
  const page = limitToPage(filteredExamples.select(['dataset_id', 'id', 'valid_from']), { by, descending }, query);
  const keys = await runStatement(database, query, (sql) => fetchRows(sql, page));
  if (keys.length === 0) return [];
  const sizedKeys = await database.query<ExampleKey>(
    `SELECT dataset_id, id, valid_from, ${contentBytesSql} AS bytes
     FROM ${keysSql} JOIN examples USING (dataset_id, id, valid_from) ORDER BY place`,
    toKeyParameters(keys),
  );
  return sizedKeys;
}

const keysSql = `unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) WITH ORDINALITY AS keys (dataset_id, id, valid_from, place)`;

const toKeyParameters = (keys: readonly Omit<ExampleKey, 'bytes'>[]) => [
  keys.map(({ dataset_id }) => dataset_id),
  keys.map(({ id }) => id),
  keys.map(({ valid_from }) => valid_from),
];

const contentColumns = 'inputs, outputs, metadata, source_run_id, attachments, created_at';

/** Reads the content of examples in the order of `keys`. */
export async function readContent(database: Sql, keys: readonly ExampleKey[]): Promise<ExampleRow[]> {
  return database.query<ExampleRow>(
    `SELECT dataset_id, id, valid_from, ${contentColumns}
     FROM ${keysSql} JOIN examples USING (dataset_id, id, valid_from) ORDER BY place`,
    toKeyParameters(keys),
  );
}

/** Maximum size of the content that is held in memory for one response. */
export const maxChunkBytes = 16 * 1024 * 1024;

/**
 * Reads additional JSON members for each example, by example id; see `formatExample`. Returns undefined if those of several
 * examples are too large together; they are then read in parts.
 */
export type ExtraMembersReader = (exampleIds: readonly string[]) => Promise<ReadonlyMap<string, string> | undefined>;

/**
 * Reads a page of examples as a JSON array. A page with large examples is read and sent in chunks. A page is never cut
 * short because of its size, because clients take a page that is shorter than the limit as the last one.
 *
 * @throws BAD_REQUEST if neither a dataset nor ids are given; NOT_FOUND for an unknown dataset or tag; OVERLOADED if there
 *   is no memory for the page; errors of {@link runSearch} and of `readExtraMembers`.
 */
export async function readExamples(
  database: Database,
  workspaceId: string,
  query: ExampleQuery,
  links: ExampleLinkDeps,
  readExtraMembers?: ExtraMembersReader,
): Promise<Buffer | Readable> {
  const keys = await findExampleKeys(database, workspaceId, query);
  const pending = splitIntoChunks(keys, maxChunkBytes);
  reserveTexts(Math.max(0, ...pending.map(sumBytes)));
  /** Returns an empty text if no chunk is left. */
  const readNext = async (): Promise<string> => {
    for (let chunk = pending.shift(); chunk !== undefined; chunk = pending.shift()) {
      const rows = await readContent(database, chunk);
      const more = readExtraMembers && (await readExtraMembers(rows.map(({ id }) => id)));
      if (readExtraMembers && more === undefined) {
        const half = Math.ceil(chunk.length / 2);
        pending.unshift(chunk.slice(0, half), chunk.slice(half));
        continue;
      }
      const text = await runInTimeSlices(
        formatRows(rows, (row) => formatExample(workspaceId, row, query.fields, links, more?.get(row.id))),
      );
      // All examples of a chunk may have been deleted since they were found.
      if (text !== '') return text;
    }
    return '';
  };
  const start = await readNext();
  if (pending.length === 0) return Buffer.from(`[${start}]`);
  async function* generateTexts() {
    for (let text = start; text !== ''; text = await readNext()) yield text;
  }
  return streamJsonArray(generateTexts());
}

export const sumBytes = (keys: readonly ExampleKey[]) => keys.reduce((sum, { bytes }) => sum + bytes, 0);

/** Formats each row in a step of its own, because an example may have many links to sign. */
function* formatRows(rows: readonly ExampleRow[], format: (row: ExampleRow) => string): StepwiseWork<string> {
  const texts: string[] = [];
  for (const row of rows) {
    texts.push(format(row));
    yield;
  }
  return texts.join(',');
}

/** Counts the examples that match a filter. @throws as {@link readExamples}. */
export async function countExamples(database: Database, workspaceId: string, filter: ExampleFilter): Promise<number> {
  const examples = (await selectExamples(database, workspaceId, filter)).select('id');
  return runStatement(database, filter, (sql) => countRows(sql, examples));
}

/** Lists the ids of the examples that match a filter, newest first. @throws as {@link readExamples}. */
export async function listExampleIds(database: Sql, workspaceId: string, filter: ExampleFilter): Promise<string[]> {
  const examples = (await selectExamples(database, workspaceId, filter)).select('id');
  const rows = await fetchRows(database, examples.orderBy('valid_from', 'desc').orderBy('id', 'desc'));
  return rows.map(({ id }) => id);
}

/** Reads an example as JSON. @throws NOT_FOUND; OVERLOADED if there is no memory for it. */
export async function readExample(
  database: Sql,
  workspaceId: string,
  { exampleId, ...filter }: Pick<ExampleFilter, 'datasetId' | 'asOf'> & { readonly exampleId: string },
  fields: ReadonlySet<ExampleField>,
  links: ExampleLinkDeps,
): Promise<Buffer> {
  const query = await selectExamples(database, workspaceId, { ...filter, ids: [exampleId] });
  const [key] = await fetchRows(database, query.select(['dataset_id', 'id', 'valid_from']).limit(1));
  const [row] = key === undefined ? [] : await readContent(database, [{ ...key, bytes: 0 }]);
  if (!row) throw runlakeError('NOT_FOUND', { what: 'Example' });
  const json = Buffer.from(formatExample(workspaceId, row, fields, links));
  reserveTexts(json.length);
  return json;
}
