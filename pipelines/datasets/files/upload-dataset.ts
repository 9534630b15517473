import { NIL, v7 as uuidv7 } from 'uuid';
import type { Config } from '../../../infra/config/settings.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { FairSlots } from '../../../infra/fairness/fair-slots.ts';
import { getTenantContext } from '../../../infra/fairness/tenant-context.ts';
import { parseMarkedJson } from '../../../infra/json/marked-json.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { runInTimeSlices } from '../../../infra/timeouts/time-slices.ts';
import type { DatasetRecord } from '../dataset.ts';
import { maxExampleDepth } from '../example.ts';
import { insertExampleRows } from '../example-rows.ts';
import { createExamplePreparer, readExampleRules } from '../validate-examples.ts';
import { type LockedDataset, writeVersionInTransaction } from '../versions.ts';
import { createDataset, type NewDataset } from '../write-dataset.ts';
import { contentHashSql, hashContents } from '../write-examples.ts';
import { readTable, type TableFormat, type TableRow } from './read-table.ts';

export interface UploadDeps {
  readonly database: Database;
  readonly config: Pick<Config, 'maxRunBytes'>;
}

/**
 * Columns of a file, by the example field into which they are read. The columns become members of that field with the
 * same names.
 */
export interface UploadedColumns {
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly metadata: readonly string[];
}

export interface UploadedFile {
  readonly format: TableFormat;
  readonly content: Buffer;
  readonly columns: UploadedColumns;
}

/** An upload holds a connection of its organisation until all rows are stored. Other requests need those that are left. */
const slots = new FairSlots({ name: 'dataset-uploads', slots: 4, extraSlots: 1, maxWaiting: 100 });
/** Not longer, because a waiting upload keeps its file in memory. */
const maxWaitMs = 10_000;

/**
 * Creates a dataset from a file, with one example for each row. Either all rows are stored or none. The rows are read,
 * validated and stored in chunks, so that not all examples are in memory at the same time. A repeated request with an id,
 * which the Python SDK sends if it loses the response, gets the dataset that exists.
 *
 * @throws as `createDataset`; INVALID_FILE, INVALID_EXAMPLE and EXAMPLE_TOO_LARGE, which name the row; DATASET_FULL;
 *   OVERLOADED if too many uploads wait, or if this one waits for too long; the reason of `disconnected` if it is aborted
 *   during the wait.
 */
export async function uploadDataset(
  { database, config }: UploadDeps,
  workspaceId: string,
  dataset: NewDataset,
  { format, content, columns }: UploadedFile,
  disconnected?: AbortSignal,
): Promise<DatasetRecord> {
  const limits = { maxRowBytes: config.maxRunBytes, maxJsonDepth: maxExampleDepth };
  const readExamples = (tx: Sql, datasetId: string) => {
    const rows = readTable(format, content, Object.values(columns).flat(), limits);
    return prepareRows({ tx, config }, { workspaceId, datasetId }, rows, columns);
  };
  const slot = await slots.acquire(getTenantContext()?.organizationId ?? '', { maxWaitMs, signal: disconnected });
  try {
    return await createDataset(database, workspaceId, dataset, {
      insert: (tx, datasetId) =>
        writeVersionInTransaction(tx, workspaceId, datasetId, (_, locked) =>
          insertExamples(tx, locked, readExamples(tx, datasetId)),
        ),
      isStored: (tx, datasetId) => areStored(tx, { workspaceId, datasetId }, readExamples(tx, datasetId)),
    });
  } finally {
    slot.release();
  }
}

const rowsPerChunk = 1_000;
const bytesPerChunk = 4 * 1024 * 1024;

/** Generates the rows of a file as examples, as the dataset demands them, in chunks. */
async function* prepareRows(
  { tx, config }: { readonly tx: Sql } & Pick<UploadDeps, 'config'>,
  ids: { readonly workspaceId: string; readonly datasetId: string },
  rows: AsyncIterable<TableRow>,
  columns: UploadedColumns,
): AsyncGenerator<readonly RowExample[]> {
  // One for all chunks, because it limits the time that all values of the request take together.
  const prepare = createExamplePreparer(await readExampleRules(tx, ids), config);
  let bytes = 0;
  let chunk: RowExample[] = [];
  const prepareChunk = async () => {
    const prepared = await prepare(chunk.map((example) => ({ ...example, id: `in row ${example.row}` })));
    const examples = prepared.map((example, index) => ({ ...example, id: chunk[index]!.id }));
    [chunk, bytes] = [[], 0];
    return examples;
  };
  for await (const row of rows) {
    const example = toExample(row, columns);
    chunk.push(example);
    bytes += example.inputs.length + (example.outputs?.length ?? 0);
    if (chunk.length >= rowsPerChunk || bytes >= bytesPerChunk) yield await prepareChunk();
  }
  if (chunk.length > 0) yield await prepareChunk();
}

/** @returns the number of examples. */
async function insertExamples(
  tx: Sql,
  dataset: LockedDataset,
  chunks: AsyncIterable<readonly RowExample[]>,
): Promise<number> {
  let count = 0;
  for await (const examples of chunks) {
    await insertExampleRows(tx, dataset, examples);
    count += examples.length;
  }
  return count;
}

/** Returns whether a dataset has had these examples, in this order, since it was created, and no others. */
async function areStored(
  tx: Sql,
  { workspaceId, datasetId }: { readonly workspaceId: string; readonly datasetId: string },
  chunks: AsyncIterable<readonly RowExample[]>,
): Promise<boolean> {
  const [dataset] = await tx.query<{ versions: number; examples: number }>(
    'SELECT version_count AS versions, example_count AS examples FROM datasets WHERE workspace_id = $1 AND id = $2',
    [workspaceId, datasetId],
  );
  if (dataset?.versions !== 1) return false;
  let count = 0;
  let lastId: string = NIL;
  for await (const examples of chunks) {
    const hashes = await runInTimeSlices(hashContents(examples));
    const stored = await tx.query<{ id: string; hash: string }>(
      `SELECT id, ${contentHashSql} AS hash FROM examples
       WHERE workspace_id = $1 AND dataset_id = $2 AND id > $3 ORDER BY id LIMIT $4`,
      [workspaceId, datasetId, lastId, examples.length],
    );
    if (stored.length < examples.length || stored.some(({ hash }, index) => hash !== hashes[index])) return false;
    count += examples.length;
    lastId = stored.at(-1)!.id;
  }
  return count === dataset.examples;
}

interface RowExample {
  readonly id: string;
  readonly row: number;
  readonly inputs: string;
  readonly outputs: string | undefined;
  readonly metadata: Record<string, unknown> | undefined;
}

function toExample(row: TableRow, columns: UploadedColumns): RowExample {
  const missing = columns.inputs.find((column) => row.read(column) === undefined);
  if (missing !== undefined) {
    throw runlakeError('INVALID_FILE', { row: row.number, reason: `it has no value ${JSON.stringify(missing)}` });
  }
  const metadata = formatObject(row, columns.metadata);
  return {
    // UUIDs of version 7 preserve the order of the rows.
    id: uuidv7(),
    row: row.number,
    inputs: formatObject(row, columns.inputs) ?? '{}',
    outputs: formatObject(row, columns.outputs),
    metadata: metadata === undefined ? undefined : (parseMarkedJson(metadata) as Record<string, unknown>),
  };
}

/** Returns a JSON object with the values that the row has for these columns; undefined if it has none. */
function formatObject(row: TableRow, columns: readonly string[]): string | undefined {
  const members = columns.flatMap((column) => {
    const value = row.read(column);
    return value === undefined ? [] : [`${JSON.stringify(column)}:${value}`];
  });
  return members.length === 0 ? undefined : `{${members.join(',')}}`;
}
