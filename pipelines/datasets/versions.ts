/**
 * Versions of datasets.
 *
 * Invariant: the content of a version never changes, except that a hard deletion removes an example from all versions.
 *
 *   1. A write locks the row of the dataset, so writes to one dataset are serialised; see `lock-dataset.ts`.
 *   2. The time of the new version is the next whole millisecond that is after both the clock of Postgres and the
 *      previous version. It is later than the time of every read that did not wait for the lock.
 *   3. The write adds rows with `valid_from`, and ends rows with `valid_to`, at the time of the new version.
 *   4. The counters of the dataset change in the same transaction. A crash before the commit leaves no changes.
 *
 * A read at a time after the newest version first waits for the write that holds the lock, because the version of that
 * write may be before that time. Reads of shared datasets do not wait, because a reader without a key must not lock
 * rows; for a time after the newest version they read the newest version.
 */
import { type Expression, type ExpressionBuilder, type SqlBool, sql } from 'kysely';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { fetchRows, listPage, type Page, type PageRequest, statements } from '../../infra/postgres/list-page.ts';
import { type Database, runInTransaction } from '../../infra/postgres/pool.ts';
import type { Tables } from '../../schemas/tables.ts';
import { formatTimeWithZone, parseTime } from '../ingest/run-event/times.ts';
import { limitLockWait, lockDataset, queueForDatasets } from './lock-dataset.ts';

/** Tag of the newest version. Clients cannot set this tag. */
const latest = 'latest';
const maxExamples = 1_000_000;
/** As many as examples, because SDKs create examples one by one. */
const maxVersions = 1_000_000;
/** Test frameworks of the SDKs set a tag for each commit. */
const maxTags = 100_000;
/** Limits the size of a response, because all tags may belong to one version. */
const maxTagBytes = 16 * 1024 ** 2;
const cloneRemedy =
  'Continue with a copy of the dataset (POST /datasets/clone), which begins without versions and tags';

export interface DatasetVersion {
  readonly as_of: string;
  readonly tags: string[];
}

/** A dataset whose row is locked for a write. */
export interface LockedDataset {
  readonly id: string;
  readonly workspaceId: string;
  /** Time of the version that the write creates. */
  readonly asOf: string;
}

/** Timeout of each statement of a write. A write may contain thousands of examples. */
export const writeTimeoutMs = 120_000;

/**
 * Creates a version in a new transaction, when it is the turn of this write. `work` writes the rows and returns by how
 * much the number of examples changes.
 *
 * @throws NOT_FOUND; DATASET_FULL; DATABASE_UNAVAILABLE if other writes take too long; errors of `work`.
 */
export async function writeVersion(
  database: Database,
  workspaceId: string,
  datasetId: string,
  work: (tx: Sql, dataset: LockedDataset) => Promise<number>,
): Promise<string> {
  const write = (tx: Sql) => writeVersionInTransaction(tx, workspaceId, datasetId, work);
  return queueForDatasets([datasetId], () => database.transaction(write, { timeoutMs: writeTimeoutMs }));
}

/**
 * Like {@link writeVersion}, but uses the transaction `tx` of the caller, who calls {@link queueForDatasets} unless `tx`
 * has created the dataset. A transaction that locks several datasets must lock them in the order of their ids.
 *
 * @param options `deletes`: the write deletes examples, which is possible beyond the limit of versions.
 */
export async function writeVersionInTransaction(
  tx: Sql,
  workspaceId: string,
  datasetId: string,
  work: (tx: Sql, dataset: LockedDataset) => Promise<number>,
  { deletes = false } = {},
): Promise<string> {
  const { versions } = await lockDataset(tx, workspaceId, datasetId, 'UPDATE');
  if (versions >= maxVersions && !deletes) throw createFullError(maxVersions, 'versions', cloneRemedy);
  const [version] = await tx.query<{ as_of: string }>(
    `INSERT INTO dataset_versions (dataset_id, as_of)
     SELECT id, greatest(date_trunc('milliseconds', clock_timestamp()), last_version) + interval '1 millisecond'
     FROM datasets WHERE id = $1 RETURNING as_of`,
    [datasetId],
  );
  const asOf = version!.as_of;
  const added = await work(tx, { id: datasetId, workspaceId, asOf });
  const [dataset] = await tx.query<{ examples: number }>(
    `UPDATE datasets SET last_version = $2, modified_at = $2, version_count = version_count + 1,
       example_count = example_count + $3 WHERE id = $1 RETURNING example_count AS examples`,
    [datasetId, asOf, added],
  );
  if (added > 0 && dataset!.examples > maxExamples) {
    throw createFullError(maxExamples, 'examples', 'Delete examples that are not needed, or use another dataset');
  }
  return asOf;
}

const createFullError = (limit: number, what: string, remedy: string) =>
  runlakeError('DATASET_FULL', { limit, what, remedy });

/** Checks that the workspace has this dataset. @throws NOT_FOUND */
export async function requireDataset(database: Sql, workspaceId: string, datasetId: string): Promise<void> {
  const [found] = await database.query('SELECT FROM datasets WHERE id = $1 AND workspace_id = $2', [
    datasetId,
    workspaceId,
  ]);
  if (!found) throw runlakeError('NOT_FOUND', { what: 'Dataset' });
}

/**
 * Converts a time, a tag or `latest` to the time at which to read; undefined means the newest version.
 *
 * @param waits If false and the time is after the newest version, the time of the newest version is returned without
 *   waiting for a lock.
 * @throws NOT_FOUND if the workspace has no such dataset, or if the dataset has no such tag; DATABASE_UNAVAILABLE if
 *   writes take too long.
 */
export async function resolveAsOf(
  database: Sql,
  workspaceId: string,
  datasetId: string,
  asOf: string | undefined,
  waits = true,
): Promise<string | undefined> {
  const newest = await readNewestVersionTime(database, workspaceId, datasetId);
  if (asOf === undefined || asOf === latest) return undefined;
  const micros = parseTime(asOf);
  if (micros !== undefined) {
    // The version of an uncommitted write is always later than the newest version.
    if (micros <= Number(parseTime(newest))) return formatTimeWithZone(micros);
    if (!waits) return newest;
    await waitForWrite(database, datasetId);
    return formatTimeWithZone(micros);
  }
  const [found] = await database.query<{ as_of: string }>(
    'SELECT as_of FROM dataset_tags WHERE dataset_id = $1 AND tag = $2',
    [datasetId, asOf],
  );
  if (!found) throw runlakeError('NOT_FOUND', { what: 'Dataset version' });
  return found.as_of;
}

/** Waits for the write that holds the lock, if there is one. */
async function waitForWrite(database: Sql, datasetId: string): Promise<void> {
  const lock = 'SELECT FROM datasets WHERE id = $1 FOR SHARE';
  const unlocked = await database.query(`${lock} SKIP LOCKED`, [datasetId]);
  if (unlocked.length > 0) return;
  await queueForDatasets([datasetId], () =>
    runInTransaction(database, async (tx) => {
      await limitLockWait(tx);
      await tx.query(lock, [datasetId]);
    }),
  );
}

/**
 * Returns the time of the newest version. For a dataset without versions returns the time of its creation, which reads
 * the same content.
 *
 * @throws NOT_FOUND
 */
export async function readNewestVersionTime(database: Sql, workspaceId: string, datasetId: string): Promise<string> {
  const [dataset] = await database.query<{ newest: string }>(
    'SELECT coalesce(last_version, created_at) AS newest FROM datasets WHERE id = $1 AND workspace_id = $2',
    [datasetId, workspaceId],
  );
  if (!dataset) throw runlakeError('NOT_FOUND', { what: 'Dataset' });
  return dataset.newest;
}

/**
 * Builds the condition that a row of `examples` belongs to the version `asOf`, or to the newest version if `asOf` is
 * undefined.
 */
export function isValidAt<TB extends keyof Tables>(
  example: ExpressionBuilder<Tables, TB | 'examples'>,
  asOf: string | undefined,
): Expression<SqlBool> {
  if (asOf === undefined) return sql<SqlBool>`${example.ref('examples.valid_to' as never)} = 'infinity'`;
  const [from, to] = [example.ref('examples.valid_from' as never), example.ref('examples.valid_to' as never)];
  return sql<SqlBool>`(${from} <= ${asOf}::timestamptz AND ${to} > ${asOf}::timestamptz)`;
}

/** The tags of a version in order. The newest version also has the tag `latest`. */
const versionTags = sql<string[]>`array(SELECT tag FROM dataset_tags
    WHERE dataset_tags.dataset_id = dataset_versions.dataset_id AND dataset_tags.as_of = dataset_versions.as_of ORDER BY tag)
  || CASE WHEN dataset_versions.as_of = datasets.last_version THEN '{latest}'::text[] ELSE '{}' END`;

/** Builds the query for the versions of a dataset with their tags. */
function selectVersions(datasetId: string) {
  return statements
    .selectFrom('dataset_versions')
    .innerJoin('datasets', 'datasets.id', 'dataset_versions.dataset_id')
    .select(['dataset_versions.as_of', versionTags.as('tags')])
    .where('dataset_versions.dataset_id', '=', datasetId);
}

const newestFirstOrder = { by: [sql.ref('dataset_versions.as_of')], descending: true };

/**
 * Lists the versions of a dataset, newest first.
 *
 * @param options `exampleId`: only versions that added, changed or deleted this example. `search`: only versions with a
 *   tag that contains this text, in upper or lower case.
 * @throws NOT_FOUND
 */
export async function listVersions(
  database: Sql,
  workspaceId: string,
  datasetId: string,
  {
    exampleId,
    search,
    ...page
  }: PageRequest & { readonly exampleId?: string | undefined; readonly search?: string | undefined },
): Promise<Page<DatasetVersion>> {
  await requireDataset(database, workspaceId, datasetId);
  let query = selectVersions(datasetId);
  // The times are found first, because there may be a million versions.
  if (exampleId !== undefined) {
    query = query.where(
      sql<SqlBool>`dataset_versions.as_of = ANY (array(
        SELECT unnest(ARRAY[valid_from, valid_to]) FROM examples WHERE dataset_id = ${datasetId} AND id = ${exampleId}))`,
    );
  }
  if (search !== undefined) {
    query = query.where(
      sql<SqlBool>`dataset_versions.as_of = ANY (array(
        SELECT as_of FROM dataset_tags WHERE dataset_id = ${datasetId} AND strpos(lower(tag), lower(${search})) > 0
        UNION ALL
        SELECT last_version FROM datasets WHERE id = ${datasetId} AND strpos(${latest}, lower(${search})) > 0))`,
    );
  }
  return listPage(database, query, newestFirstOrder, page);
}

/** Returns the version with a tag, or the version that was the newest at a time. @throws NOT_FOUND */
export async function readVersion(
  database: Sql,
  workspaceId: string,
  datasetId: string,
  asOf: string,
): Promise<DatasetVersion> {
  const time = await resolveAsOf(database, workspaceId, datasetId, asOf);
  const query = selectVersions(datasetId).where(
    sql<SqlBool>`dataset_versions.as_of <= ${time ?? 'infinity'}::timestamptz`,
  );
  const [version] = await fetchRows(database, query.orderBy('dataset_versions.as_of', 'desc').limit(1));
  if (!version) throw runlakeError('NOT_FOUND', { what: 'Dataset version' });
  return version;
}

/**
 * Sets a tag on the version that {@link readVersion} returns for `asOf`. If another version already has the tag, the
 * tag is moved.
 *
 * @throws NOT_FOUND; BAD_REQUEST for a tag that would be ambiguous; DATASET_FULL.
 */
export async function tagVersion(
  database: Database,
  workspaceId: string,
  datasetId: string,
  { asOf, tag }: { readonly asOf: string; readonly tag: string },
): Promise<DatasetVersion> {
  if (tag === latest || parseTime(tag) !== undefined) {
    throw runlakeError('BAD_REQUEST', { reason: 'A tag must be neither `latest` nor a time.' });
  }
  const version = await readVersion(database, workspaceId, datasetId, asOf);
  const write = async (tx: Sql) => {
    await lockDataset(tx, workspaceId, datasetId, 'NO KEY UPDATE');
    await tx.execute(
      `INSERT INTO dataset_tags (dataset_id, tag, as_of) VALUES ($1, $2, $3)
       ON CONFLICT (dataset_id, tag) DO UPDATE SET as_of = excluded.as_of`,
      [datasetId, tag, version.as_of],
    );
    const [found] = await tx.query<{ tags: number; bytes: number }>(
      'SELECT count(*) AS tags, sum(octet_length(tag)) AS bytes FROM dataset_tags WHERE dataset_id = $1',
      [datasetId],
    );
    if (found!.tags > maxTags) throw createFullError(maxTags, 'tags', cloneRemedy);
    if (found!.bytes > maxTagBytes) throw createFullError(maxTagBytes, 'bytes of tags', cloneRemedy);
  };
  await queueForDatasets([datasetId], () => database.transaction(write));
  return readVersion(database, workspaceId, datasetId, version.as_of);
}

export interface VersionDiff {
  readonly examples_added: string[];
  readonly examples_modified: string[];
  readonly examples_removed: string[];
}

/** Compares two versions, each of which is given as a time or a tag. @throws NOT_FOUND */
export async function diffVersions(
  database: Sql,
  workspaceId: string,
  datasetId: string,
  { from, to }: { readonly from: string; readonly to: string },
): Promise<VersionDiff> {
  const [before, after] = [
    await resolveAsOf(database, workspaceId, datasetId, from),
    await resolveAsOf(database, workspaceId, datasetId, to),
  ];
  const at = (parameter: string) =>
    `SELECT id, valid_from FROM examples WHERE dataset_id = $1 AND CASE WHEN ${parameter} IS NULL
       THEN valid_to = 'infinity' ELSE valid_from <= ${parameter} AND valid_to > ${parameter} END`;
  const rows = await database.query<{ id: string; kind: keyof VersionDiff }>(
    `SELECT coalesce(a.id, b.id) AS id, CASE WHEN a.id IS NULL THEN 'examples_added'
       WHEN b.id IS NULL THEN 'examples_removed' ELSE 'examples_modified' END AS kind
     FROM (${at('$2::timestamptz')}) AS a FULL JOIN (${at('$3::timestamptz')}) AS b ON a.id = b.id
     WHERE a.valid_from IS DISTINCT FROM b.valid_from ORDER BY 1`,
    [datasetId, before ?? null, after ?? null],
  );
  const ids = (kind: keyof VersionDiff) => rows.filter((row) => row.kind === kind).map(({ id }) => id);
  return {
    examples_added: ids('examples_added'),
    examples_modified: ids('examples_modified'),
    examples_removed: ids('examples_removed'),
  };
}
