/** Rows of examples: reads the newest state, and writes the next one in a transaction that has locked the dataset. */
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { reserveMemory } from '../../infra/fairness/tenant-context.ts';
import type { JsonObject } from '../../infra/json/json-value.ts';
import { formatMarkedJson, parseMarkedJson } from '../../infra/json/marked-json.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { toJsonb } from '../../infra/postgres/value-types.ts';
import { runInTimeSlices } from '../../infra/timeouts/time-slices.ts';
import type { AttachmentLocation } from '../attachments/attachment-sets.ts';
import { addSplits, requireWriteSize } from './example.ts';
import type { LockedDataset } from './versions.ts';

export interface CurrentExample {
  readonly metadata: JsonObject;
  readonly attachments: Readonly<Record<string, AttachmentLocation>>;
}

interface ChangeDeps {
  /** Transaction that has locked the dataset. */
  readonly tx: Sql;
  readonly config: Pick<Config, 'maxBodyBytes'>;
}

/**
 * Returns the newest state of the given examples, by id.
 *
 * @throws NOT_FOUND; CONFLICT if an example belongs to another dataset; BAD_REQUEST if they are too large together.
 */
export async function readCurrentExamples(
  { tx, config }: ChangeDeps,
  dataset: LockedDataset,
  ids: readonly string[],
): Promise<Map<string, CurrentExample>> {
  const found = await findCurrentExamples({ tx, config }, dataset, ids);
  const missing = ids.filter((id) => !found.has(id));
  if (missing.length === 0) return found;
  const [elsewhere] = await tx.query<{ id: string }>(
    `SELECT id FROM examples WHERE workspace_id = $1 AND id = ANY ($2::uuid[]) AND valid_to = 'infinity' LIMIT 1`,
    [dataset.workspaceId, missing],
  );
  if (elsewhere) throw runlakeError('CONFLICT', { reason: `Example ${elsewhere.id} belongs to another dataset.` });
  throw runlakeError('NOT_FOUND', { what: `Example ${missing[0]}` });
}

/**
 * Like {@link readCurrentExamples}, but omits examples that are not in the dataset.
 *
 * @throws BAD_REQUEST if the examples are too large together; OVERLOADED if there is no memory for them.
 */
export async function findCurrentExamples(
  { tx, config }: ChangeDeps,
  { workspaceId, id: datasetId }: LockedDataset,
  ids: readonly string[],
): Promise<Map<string, CurrentExample>> {
  const selected = `FROM examples
     WHERE workspace_id = $1 AND dataset_id = $2 AND id = ANY ($3::uuid[]) AND valid_to = 'infinity'`;
  const params = [workspaceId, datasetId, ids];
  const [size] = await tx.query<{ bytes: number }>(
    `SELECT coalesce(sum(octet_length(metadata) + octet_length(attachments::text)), 0)::bigint AS bytes ${selected}`,
    params,
  );
  requireWriteSize(size!.bytes, config);
  if (size!.bytes > unreservedBytes) reserveMemory(heapBytesPerByte * size!.bytes);
  const rows = await tx.query<{ id: string; metadata: string } & Pick<CurrentExample, 'attachments'>>(
    `SELECT id, metadata, attachments ${selected}`,
    params,
  );
  return runInTimeSlices(parseRows(rows));
}

/** Size of what a write reads for which it does not reserve memory. */
const unreservedBytes = 1024 ** 2;
/** The stored text, the parsed values, and the new text of both columns. */
const heapBytesPerByte = 4;

function* parseRows(rows: readonly (Pick<CurrentExample, 'attachments'> & { id: string; metadata: string })[]) {
  const parsed = new Map<string, CurrentExample>();
  for (const { id, metadata, attachments } of rows) {
    parsed.set(id, { metadata: parseMarkedJson(metadata) as JsonObject, attachments });
    yield;
  }
  return parsed;
}

/** Fields of a new example, as they are sent and as they are stored. */
export interface ExampleFields {
  readonly id: string;
  readonly createdAt?: string | null | undefined;
  readonly outputs?: string | null | undefined;
  readonly metadata?: JsonObject | null | undefined;
  readonly split?: string | readonly string[] | null | undefined;
  readonly sourceRunId?: string | null | undefined;
}

interface NewRow extends ExampleFields {
  readonly inputs: string;
  readonly attachments?: Readonly<Record<string, AttachmentLocation>> | undefined;
}

/** Adds examples to the version that a write creates. @throws errors of the database client if an id already exists. */
export async function insertExampleRows(tx: Sql, dataset: LockedDataset, rows: readonly NewRow[]): Promise<void> {
  const format = (row: NewRow) => {
    const metadata = addSplits(row.metadata ?? {}, row.split);
    return [
      ...[
        row.id,
        row.createdAt ?? null,
        row.inputs,
        row.outputs ?? null,
        formatMarkedJson(metadata),
        toJsonb(metadata),
      ],
      ...[row.sourceRunId ?? null, toJsonb(row.attachments ?? {})],
    ];
  };
  await writeInChunks(rows, format, (columns) =>
    tx.execute(
      `INSERT INTO examples (workspace_id, dataset_id, valid_from, id, created_at, inputs, outputs, metadata, searchable,
         source_run_id, attachments)
       SELECT $1, $2, $3, id, coalesce(created_at, $3), inputs, outputs, metadata, searchable, source_run_id, attachments
       FROM unnest($4::uuid[], $5::timestamptz[], $6::text[], $7::text[], $8::text[], $9::jsonb[], $10::uuid[], $11::jsonb[])
         AS new (id, created_at, inputs, outputs, metadata, searchable, source_run_id, attachments)`,
      [dataset.workspaceId, dataset.id, dataset.asOf, ...columns],
    ),
  );
}

export interface ChangedRow {
  readonly id: string;
  /** New inputs. If undefined or null, the inputs stay unchanged. */
  readonly inputs?: string | null | undefined;
  readonly outputs?: string | null | undefined;
  readonly metadata: JsonObject;
  readonly attachments: Readonly<Record<string, AttachmentLocation>>;
}

/** Ends the current rows of examples and inserts the rows that replace them. */
export async function replaceExampleRows(tx: Sql, dataset: LockedDataset, rows: Iterable<ChangedRow>): Promise<void> {
  const format = ({ id, inputs, outputs, metadata, attachments }: ChangedRow) => [
    ...[id, inputs ?? null, outputs ?? null],
    ...[formatMarkedJson(metadata), toJsonb(metadata), toJsonb(attachments)],
  ];
  await writeInChunks(rows, format, (columns) =>
    tx.execute(
      `WITH former AS (
         UPDATE examples SET valid_to = $3
         WHERE dataset_id = $2 AND workspace_id = $1 AND id = ANY ($4::uuid[]) AND valid_to = 'infinity' RETURNING *
       )
       INSERT INTO examples (workspace_id, dataset_id, valid_from, id, created_at, inputs, outputs, metadata, searchable,
         source_run_id, attachments)
       SELECT former.workspace_id, former.dataset_id, $3, id, former.created_at, coalesce(new.inputs, former.inputs),
         coalesce(new.outputs, former.outputs), new.metadata, new.searchable, former.source_run_id, new.attachments
       FROM former JOIN unnest($4::uuid[], $5::text[], $6::text[], $7::text[], $8::jsonb[], $9::jsonb[])
         AS new (id, inputs, outputs, metadata, searchable, attachments) USING (id)`,
      [dataset.workspaceId, dataset.id, dataset.asOf, ...columns],
    ),
  );
}

/** Size of the values of a statement. The database client encodes them without interruption. */
const charactersPerStatement = 512 * 1024;

type Values = readonly (string | null)[];

/** Formats rows and writes them in several statements, so that other requests are not blocked. */
async function writeInChunks<Row>(
  rows: Iterable<Row>,
  format: (row: Row) => Values,
  write: (columns: readonly Values[]) => Promise<unknown>,
): Promise<void> {
  let chunk: Values[] = [];
  let characters = 0;
  const flush = async () => {
    const columns = (chunk[0] ?? []).map((_, column) => chunk.map((values) => values[column] ?? null));
    [chunk, characters] = [[], 0];
    await write(columns);
  };
  for (const row of rows) {
    const values = format(row);
    chunk.push(values);
    for (const value of values) characters += value?.length ?? 0;
    if (characters >= charactersPerStatement) await flush();
  }
  if (chunk.length > 0) await flush();
}
