/**
 * Reads the values of a chunk that its rows do not contain: tokens and costs of runs that have model calls among their
 * descendants, dotted orders of runs that were sent without one, and feedback statistics.
 *
 * The values are written to CSV files with one line for each row of the chunk, in the same order, so that the encoder can
 * read them beside the chunk. Most chunks need no such values, and then there is no file. Memory use does not grow with
 * the chunk, except for the ids of runs with feedback, and for the tokens and costs of runs with model calls among their
 * descendants.
 */
import { createReadStream } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { groupBy } from '../../infra/collections/group-by.ts';
import { type DerivedFiles, maxListBytes, type ParquetFooter } from '../../infra/duckdb/encode-sql.ts';
import type { Encoder } from '../../infra/duckdb/encoder.ts';
import { toWorkFileError } from '../../infra/errors/work-file-error.ts';
import { splitIntoChunks } from '../../infra/postgres/page-within.ts';
import type { ExportField } from '../../schemas/parquet/run-columns.ts';
import { readFeedbackStatsByRun, shownFeedbackBytes } from '../feedback/feedback-stats.ts';
import { type Figures, sumDescendants } from '../runs/descendant-figures.ts';
import { listAncestorIds, type RunWithoutDottedOrder, TraceTree } from '../runs/dotted-orders.ts';
import { readMembersByTrace } from '../runs/trace-facts.ts';
import {
  chunkColumns,
  getSourceColumnName,
  idColumn,
  listDerivedKinds,
  missingOrderColumn,
  parseRunWithoutDottedOrder,
} from './chunk-columns.ts';
import type { MembersCondition } from './members.ts';
import type { ExportScope } from './record.ts';

/** Formats one CSV line (RFC 4180). All values are quoted; an absent value is empty. */
function formatCsvLine(values: readonly (string | undefined)[]): string {
  return `${values.map((value) => (value === undefined ? '' : `"${value.replaceAll('"', '""')}"`)).join(',')}\n`;
}

/** Maximum size of the lines that are kept in memory. */
const maxPendingBytes = 8 * 1024 * 1024;

/** Lines in files whose ancestries DuckDB can hold in memory. */
class LineFiles {
  readonly files: DerivedFiles['files'][number][] = [];
  maxLineBytes = 0;
  /** Number of rows of the files that are full of ancestries, the lowest. */
  rowsAtOnce = Number.POSITIVE_INFINITY;
  readonly #folder: string;
  #lines: string[] = [];
  #bytes = 0;
  #ancestryBytes = 0;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /**
   * @param line with its line terminator.
   * @param ancestryBytes size of the ancestry of which the line has values.
   * @throws WORK_FILE_UNUSABLE.
   */
  async add(line: string, ancestryBytes: number): Promise<void> {
    const bytes = Buffer.byteLength(line);
    this.#lines.push(line);
    this.#bytes += bytes;
    this.maxLineBytes = Math.max(this.maxLineBytes, bytes);
    this.#ancestryBytes += ancestryBytes;
    if (this.#ancestryBytes >= maxListBytes) {
      this.rowsAtOnce = Math.min(this.rowsAtOnce, this.#lines.length);
      await this.flush();
    } else if (this.#bytes >= maxPendingBytes) await this.flush();
  }

  /** Writes the lines that are not in a file yet. @throws WORK_FILE_UNUSABLE. */
  async flush(): Promise<void> {
    if (this.#lines.length === 0) return;
    const name = `derived-${this.files.length}.csv`;
    const path = join(this.#folder, name);
    this.files.push({ name, rows: this.#lines.length, bytes: this.#bytes });
    try {
      await writeFile(path, this.#lines.join(''), { mode: 0o600 });
    } catch (error) {
      throw toWorkFileError(path, error);
    }
    this.#lines = [];
    this.#bytes = 0;
    this.#ancestryBytes = 0;
  }

  async remove(): Promise<void> {
    for (const { name } of this.files) await rm(join(this.#folder, name), { force: true });
  }
}

/** Reads a file line by line. @throws WORK_FILE_UNUSABLE. */
async function* readLines(path: string): AsyncGenerator<string> {
  const stream = createReadStream(path);
  try {
    for await (const line of createInterface({ input: stream, crlfDelay: Number.POSITIVE_INFINITY })) yield line;
  } catch (error) {
    throw toWorkFileError(path, error);
  } finally {
    stream.destroy();
  }
}

interface DerivedRequest {
  readonly scope: ExportScope;
  /** Condition on the keys of the runs in the chunk. */
  readonly condition: MembersCondition;
  readonly fields: readonly ExportField[];
  readonly folder: string;
  readonly source: string;
  /** Footer of the source file. */
  readonly footer: ParquetFooter;
}

interface DerivedValueDeps {
  readonly clickhouse: ClickHouse;
  readonly encoder: Encoder;
}

const rowsFileName = 'rows.csv';
/** Value of the first column of each line. Without this column, a line with only one empty value would be blank. */
const presenceMarker = '1';
/** Number of rows whose ancestors are read at once. */
const batchRows = 10_000;
/**
 * Maximum size of the feedback that one query reads; that of a single run may exceed it. A run counts as at least a thousandth,
 * so that a query reads at most 1,000 runs.
 */
const feedbackBatchBytes = 8 * 1024 * 1024;

/** One row of the chunk: the id of the run and, if the run has no dotted order, the data from which to derive one. */
interface ChunkRow {
  readonly runId: string;
  readonly runWithoutOrder: RunWithoutDottedOrder | undefined;
}

/**
 * Reads the derived values of a chunk into files.
 *
 * @returns the files, or undefined if no row needs derived values.
 * @throws the errors of `readChunk`; in this case no file is left.
 */
export async function readDerivedValues(
  deps: DerivedValueDeps,
  request: DerivedRequest,
  signal: AbortSignal,
): Promise<DerivedFiles | undefined> {
  const { fields, folder, source, footer } = request;
  const derivedFields = fields.filter((field) => chunkColumns[field].derived !== undefined);
  const derivedKinds = listDerivedKinds(fields);
  const hasRunWithoutDottedOrder = derivedKinds.has('ancestry') && footer.nulls[missingOrderColumn] !== footer.rows;
  const feedbackBytes = derivedKinds.has('feedback')
    ? await measureFeedback(deps.clickhouse, request, signal)
    : noFeedback;
  const figures = derivedKinds.has('figures')
    ? await sumChunkFigures(deps.clickhouse, request, signal)
    : new Map<string, Figures>();
  if (!hasRunWithoutDottedOrder && feedbackBytes.size === 0 && figures.size === 0) return undefined;
  const lines = new LineFiles(folder);
  try {
    const columns = derivedKinds.has('ancestry') ? [idColumn, missingOrderColumn] : [idColumn];
    await deps.encoder.list({ folder, source, target: rowsFileName, columns }, signal);
    for await (const batch of readBatches(join(folder, rowsFileName))) {
      signal.throwIfAborted();
      const ancestries = await deriveAncestries(deps.clickhouse, request.scope, batch);
      const rows = batch.map(({ runId }) => ({
        runId,
        bytes: Math.max(feedbackBytes.get(runId) ?? 0, feedbackBatchBytes / 1_000),
      }));
      for (const chunk of splitIntoChunks(rows, feedbackBatchBytes)) {
        const ids = chunk.flatMap(({ runId }) => (feedbackBytes.has(runId) ? [runId] : []));
        const stats = await readFeedbackStatsByRun(deps.clickhouse, request.scope.tenantId, ids, {
          expiredAfterMicros: request.scope.membersUntilMicros,
        });
        for (const { runId } of chunk) {
          const values = {
            ancestry: ancestries.get(runId)?.(),
            stats: stats.get(runId),
            figures: figures.get(runId),
          };
          const texts = derivedFields.map((field) => formatDerivedValue(field, values));
          await lines.add(formatCsvLine([presenceMarker, ...texts]), values.ancestry?.dottedOrder.length ?? 0);
        }
      }
    }
    await lines.flush();
    return {
      files: lines.files,
      columns: ['there', ...derivedFields.map(getSourceColumnName)],
      maxLineBytes: lines.maxLineBytes,
      rowsAtOnce: lines.rowsAtOnce,
    };
  } catch (error) {
    await lines.remove();
    throw error;
  } finally {
    await rm(join(folder, rowsFileName), { force: true });
  }
}

const noFeedback: ReadonlyMap<string, number> = new Map();

/**
 * Returns the runs of the chunk that have feedback, with its size. Comments and labels that the statistics leave out do not
 * count. If the workspace has no feedback, the runs are not queried.
 */
async function measureFeedback(
  clickhouse: ClickHouse,
  { condition: { sql, params } }: DerivedRequest,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, number>> {
  const name = 'feedback-of-chunk';
  const tenantCondition = 'tenant_id = {tenant:UUID}';
  const any = await clickhouse.query({
    name,
    sql: `SELECT 1 FROM feedback WHERE ${tenantCondition} LIMIT 1`,
    params,
    signal,
  });
  if (any.length === 0) return noFeedback;
  const rows = await clickhouse.query<{ run_id: string; bytes: number }>({
    name,
    sql: `SELECT run_id, sum(${shownFeedbackBytes}) AS bytes FROM feedback
      WHERE ${tenantCondition} AND run_id IN (SELECT id FROM runs WHERE ${sql}) GROUP BY run_id`,
    params,
    signal,
  });
  return new Map(rows.map(({ run_id, bytes }) => [run_id, bytes]));
}

async function* readBatches(path: string): AsyncGenerator<ChunkRow[]> {
  let batch: ChunkRow[] = [];
  for await (const line of readLines(path)) {
    // Neither of these columns contains commas or quotes.
    const [runId = '', runWithoutOrder] = line.split(',');
    batch.push({ runId, runWithoutOrder: runWithoutOrder ? parseRunWithoutDottedOrder(runWithoutOrder) : undefined });
    if (batch.length < batchRows) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
}

interface Ancestry {
  readonly dottedOrder: string;
  readonly parentRunId: string | undefined;
}

const noTree = new TraceTree([]);

/** Ancestries are built one at a time: those of 10,000 runs in a deep trace take hundreds of megabytes. */
async function deriveAncestries(
  clickhouse: ClickHouse,
  { tenantId, projectId }: ExportScope,
  batch: readonly ChunkRow[],
): Promise<ReadonlyMap<string, () => Ancestry>> {
  const runs = batch.flatMap(({ runWithoutOrder }) => runWithoutOrder ?? []);
  const ancestries = new Map<string, () => Ancestry>();
  const derive = (run: RunWithoutDottedOrder, tree: TraceTree) => {
    const { runId, parentRunId } = run;
    const buildDottedOrder = tree.findAncestors(run);
    ancestries.set(runId, () => ({ dottedOrder: buildDottedOrder(), parentRunId }));
  };
  for (const root of runs.filter(({ runId, traceId }) => runId === traceId)) derive(root, noTree);
  const descendants = runs.filter(({ runId, traceId }) => runId !== traceId);
  const byTrace = groupBy(descendants, ({ traceId }) => traceId);
  const scope = { tenantId, projectIds: [projectId] };
  for await (const [traceId, members] of readMembersByTrace(clickhouse, scope, [...byTrace.keys()])) {
    const tree = new TraceTree(members);
    for (const run of byTrace.get(traceId) ?? []) derive(run, tree);
  }
  return ancestries;
}

/** Sums the tokens and costs of descendant model calls for each run of the chunk that has such descendants. */
function sumChunkFigures(
  clickhouse: ClickHouse,
  { scope: { tenantId, projectId }, condition: { sql, params } }: DerivedRequest,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, Figures>> {
  return sumDescendants(clickhouse, {
    scope: { tenantId, projectIds: [projectId] },
    traces: `(SELECT trace_id FROM {stored_runs:Identifier} WHERE ${sql})`,
    targets: `(SELECT id FROM {stored_runs:Identifier} WHERE ${sql})`,
    params,
    withDetails: false,
    signal,
  });
}

interface DerivedValues {
  readonly ancestry: Ancestry | undefined;
  readonly stats: string | undefined;
  readonly figures: Figures | undefined;
}

function formatDerivedValue(field: ExportField, { ancestry, stats, figures }: DerivedValues): string | undefined {
  switch (chunkColumns[field].derived) {
    case 'feedback':
      return stats;
    case 'figures':
      return formatFigure(field, figures?.get(field));
    default:
      return ancestry === undefined ? undefined : formatAncestry(field, ancestry);
  }
}

const maxInteger = 2n ** 63n - 1n;

/** Formats a sum of tokens or costs. More tokens than the greatest 64-bit integer become that integer. */
function formatFigure(field: ExportField, sum: string | undefined): string | undefined {
  return sum !== undefined && chunkColumns[field].kind === 'integer' && BigInt(sum) > maxInteger
    ? String(maxInteger)
    : sum;
}

function formatAncestry(field: ExportField, { dottedOrder, parentRunId }: Ancestry): string | undefined {
  const ancestors = listAncestorIds(dottedOrder);
  if (field === 'parent_run_ids') return JSON.stringify(ancestors);
  return field === 'parent_run_id' ? (parentRunId ?? ancestors.at(-1)) : dottedOrder;
}
