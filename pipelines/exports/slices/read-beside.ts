/**
 * What the rows of a slice do not hold: tokens and costs of runs with model calls below them, places of runs that came without
 * dotted_order, and statistics of feedback.
 *
 * It goes into a CSV file of as many lines as the slice has rows, in their order, so that the encoder can read both side by
 * side. Mostly there is nothing and no file. The lines are made batch by batch: memory does not grow with the slice, save for
 * the ids of runs with feedback, and the figures of runs with model calls below them.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Warehouse } from '../../../infra/clickhouse/warehouse.ts';
import type { BesideFile, ParquetFacts } from '../../../infra/duckdb/encode-request.ts';
import type { Encoder } from '../../../infra/duckdb/encoder.ts';
import type { ExportField } from '../../../schemas/parquet/run-columns.ts';
import { feedbackStats } from '../../feedback/feedback-stats.ts';
import { type Figures, sumDescendants } from '../../runs/descendant-figures.ts';
import { ancestorIds, dottedOrderOf, type Unplaced } from '../../runs/dotted-orders.ts';
import { readMembersOfTraces } from '../../runs/trace-members.ts';
import type { ExportScope, ExportSlice } from '../export-scope.ts';
import { csvLine, LineFile, readLines } from './line-file.ts';
import { placeOfMembers } from './members.ts';
import { besidesOf, idColumn, readUnplaced, sliceColumns, sourceName, unplacedColumn } from './slice-columns.ts';

export interface BesideRequest {
  readonly scope: ExportScope;
  readonly slice: ExportSlice;
  readonly fields: readonly ExportField[];
  readonly folder: string;
  readonly source: string;
  /** Of the source. */
  readonly facts: ParquetFacts;
}

interface Ports {
  readonly warehouse: Warehouse;
  readonly encoder: Encoder;
}

const listing = 'rows.csv';
const file = 'beside.csv';
/** In front of each line: one of a single empty value would be no line. */
const there = '1';
const figuresTimeoutMs = 900_000;
/** Rows whose surroundings are read at once. */
const batchRows = 1_000;

/** One row of the slice that may want something: its run, and its place where that has to be put together. */
interface SliceRow {
  readonly runId: string;
  readonly unplaced: Unplaced | undefined;
}

/** @returns the file, or undefined where no row needs anything. @throws as `readSlice`; then it leaves no file. */
export async function readBeside(
  ports: Ports,
  request: BesideRequest,
  signal: AbortSignal,
): Promise<BesideFile | undefined> {
  const { fields, folder, source, facts } = request;
  const wanted = fields.filter((field) => sliceColumns[field].beside !== undefined);
  const besides = besidesOf(fields);
  const hasUnplaced = besides.has('place') && facts.nulls[unplacedColumn] !== facts.rows;
  const withFeedback = besides.has('feedback') ? await runsWithFeedback(ports.warehouse, request, signal) : none;
  const figures = besides.has('figures')
    ? await figuresOfSlice(ports.warehouse, request, signal)
    : new Map<string, Figures>();
  if (!hasUnplaced && withFeedback.size === 0 && figures.size === 0) return undefined;
  const lines = new LineFile(join(folder, file));
  try {
    const columns = besides.has('place') ? [idColumn, unplacedColumn] : [idColumn];
    await ports.encoder.list({ folder, source, target: listing, columns }, signal);
    for await (const batch of batches(join(folder, listing))) {
      signal.throwIfAborted();
      const places = await placesOf(ports.warehouse, request.scope, batch);
      const ids = batch.map(({ runId }) => runId).filter((id) => withFeedback.has(id));
      const stats = await feedbackStats(ports.warehouse, request.scope.tenantId, ids);
      await lines.write(
        batch.map(({ runId }) =>
          csvLine([
            there,
            ...wanted.map((field) =>
              besideValue(field, { place: places.get(runId), stats: stats.get(runId), figures: figures.get(runId) }),
            ),
          ]),
        ),
      );
    }
    await lines.close();
    return { file, columns: ['there', ...wanted.map(sourceName)], longestLineBytes: lines.longestLineBytes };
  } catch (error) {
    await lines.remove();
    throw error;
  } finally {
    await rm(join(folder, listing), { force: true });
  }
}

const none: ReadonlySet<string> = new Set();

/** Which runs of the slice have feedback. Where a workspace has none at all, no run is looked at. */
async function runsWithFeedback(
  warehouse: Warehouse,
  { scope, slice }: BesideRequest,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const name = 'feedback-of-slice';
  const tenant = 'tenant_id = {tenant:UUID}';
  const { sql, params } = placeOfMembers(scope, slice);
  const any = await warehouse.query({ name, sql: `SELECT 1 FROM feedback WHERE ${tenant} LIMIT 1`, params, signal });
  if (any.length === 0) return none;
  const rows = await warehouse.query<{ run_id: string }>({
    name,
    sql: `SELECT DISTINCT run_id FROM feedback WHERE ${tenant} AND run_id IN (SELECT id FROM runs WHERE ${sql})`,
    params,
    signal,
  });
  return new Set(rows.map(({ run_id }) => run_id));
}

async function* batches(path: string): AsyncGenerator<SliceRow[]> {
  let batch: SliceRow[] = [];
  for await (const line of readLines(path)) {
    // Neither ids nor what tells of unplaced runs holds a comma or a quote.
    const [runId = '', unplaced] = line.split(',');
    batch.push({ runId, unplaced: unplaced ? readUnplaced(unplaced) : undefined });
    if (batch.length < batchRows) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
}

interface Place {
  readonly dottedOrder: string;
  readonly parentRunId: string | undefined;
}

async function placesOf(
  warehouse: Warehouse,
  { tenantId, projectId }: ExportScope,
  batch: readonly SliceRow[],
): Promise<ReadonlyMap<string, Place>> {
  const runs = batch.flatMap(({ unplaced }) => unplaced ?? []);
  const traceIds = [...new Set(runs.filter((run) => run.runId !== run.traceId).map((run) => run.traceId))];
  const members = await readMembersOfTraces(warehouse, { tenantId, projectIds: [projectId] }, traceIds);
  const byTrace = new Map([...members].map(([traceId, list]) => [traceId, new Map(list.map((m) => [m.runId, m]))]));
  return new Map(
    runs.map((run) => {
      const dottedOrder = dottedOrderOf(run, byTrace.get(run.traceId) ?? new Map());
      return [run.runId, { dottedOrder, parentRunId: run.parentRunId }];
    }),
  );
}

/** Tokens and costs of the runs of the slice that have model calls below them. */
function figuresOfSlice(
  warehouse: Warehouse,
  { scope: { tenantId, projectId, ...scope }, slice }: BesideRequest,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, Figures>> {
  const { sql, params } = placeOfMembers({ tenantId, projectId, ...scope }, slice);
  return sumDescendants(warehouse, {
    scope: { tenantId, projectIds: [projectId] },
    traces: `(SELECT trace_id FROM runs WHERE ${sql})`,
    targets: `(SELECT id FROM runs WHERE ${sql})`,
    params,
    signal,
    timeoutMs: figuresTimeoutMs,
  });
}

interface Beside {
  readonly place: Place | undefined;
  readonly stats: string | undefined;
  readonly figures: Figures | undefined;
}

function besideValue(field: ExportField, { place, stats, figures }: Beside): string | undefined {
  switch (sliceColumns[field].beside) {
    case 'feedback':
      return stats;
    case 'figures':
      return figures?.get(field);
    default:
      return place === undefined ? undefined : placeValue(field, place);
  }
}

function placeValue(field: ExportField, { dottedOrder, parentRunId }: Place): string | undefined {
  const ancestors = ancestorIds(dottedOrder);
  if (field === 'parent_run_ids') return JSON.stringify(ancestors);
  return field === 'parent_run_id' ? (parentRunId ?? ancestors.at(-1)) : dottedOrder;
}
