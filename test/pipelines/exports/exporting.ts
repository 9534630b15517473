import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parquetMetadataAsync, parquetReadObjects, parquetSchema } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { type Encoder, openEncoder } from '../../../infra/duckdb/encoder.ts';
import {
  type ChunkDeps,
  type ChunkLimits,
  type ChunkRequest,
  findChunk,
  readChunk,
} from '../../../pipelines/exports/chunk-reader.ts';
import type { ParquetPart } from '../../../pipelines/exports/export-deps.ts';
import type { ExportCursor } from '../../../pipelines/exports/members.ts';
import { encodeChunk } from '../../../pipelines/exports/parquet-writer.ts';
import type { ExportFormat, ExportScope } from '../../../pipelines/exports/record.ts';
import { readFeedbackStatsByRun } from '../../../pipelines/feedback/feedback-stats.ts';
import { formatTime } from '../../../pipelines/ingest/run-event/times.ts';
import { queryRuns, v1Envelope } from '../../../pipelines/runs/query-runs.ts';
import { selectFields } from '../../../pipelines/runs/run-select.ts';
import { exportFields, runParquetColumns } from '../../../schemas/parquet/run-columns.ts';
import { splitJson } from '../../histories/json-text.ts';
import { openReading, type Reading } from '../runs/reading.ts';
import { projectId, tenantId } from '../runs/run-events.ts';

/**
 * Column values in the form in which the test compares them: text, numbers, booleans, lists of text; times as
 * microseconds.
 */
export type Row = Record<string, unknown>;

export interface ExportFixture {
  readonly reading: Reading;
  readonly encoder: Encoder;
  /** Creates an empty folder that only this test uses. */
  folder(): Promise<string>;
  close(): Promise<void>;
}

export const dayMicros = 86_400_000_000;
export const wholeDay: ExportScope = {
  tenantId,
  projectId,
  window: { fromMicros: Date.UTC(2026, 2, 5) * 1_000, untilMicrosExclusive: Date.UTC(2026, 2, 6) * 1_000 },
  membersUntilMicros: Date.UTC(2030, 0, 1) * 1_000,
};
export const everything: ExportFormat = { version: 'v2_beta', compression: 'zstandard', fields: exportFields };

export async function openExporting(): Promise<ExportFixture> {
  const reading = await openReading({
    feedbackStats: (tenant, runIds) => readFeedbackStatsByRun(reading.stores.clickhouse, tenant, runIds),
    attachmentUrls: async () => new Map(),
    shares: async () => new Map(),
    uses: async () => new Map(),
    datasets: async () => new Map(),
  });
  const encoder = openEncoder({ memoryLimitBytes: 256 * 1024 * 1024 });
  const root = await mkdtemp(join(tmpdir(), 'runlake-export-'));
  let count = 0;
  return {
    reading,
    encoder,
    async folder() {
      const folder = join(root, `chunk-${++count}`);
      await mkdir(folder);
      return folder;
    },
    async close() {
      await encoder.close();
      await reading.stores.close();
      await rm(root, { recursive: true, force: true });
    },
  };
}

/** Writes a chunk to a file. */
export async function makePart(deps: ChunkDeps, request: ChunkRequest, signal: AbortSignal) {
  return encodeChunk(deps, await readChunk(deps, request, signal), request, signal);
}

/** Writes all chunks of a scope to files, each in its own folder, and checks that the folders contain nothing else. */
export async function exportAllChunks(
  exporting: ExportFixture,
  scope: ExportScope,
  format: ExportFormat,
  limits: ChunkLimits = { rows: 100_000, bytes: 1e9 },
): Promise<ParquetPart[]> {
  const { clickhouse } = exporting.reading.stores;
  const signal = new AbortController().signal;
  const parts: ParquetPart[] = [];
  for (let after: ExportCursor | undefined; ; ) {
    const chunk = await findChunk(clickhouse, scope, after, limits, signal);
    if (chunk === undefined) return parts;
    const folder = await exporting.folder();
    const part = await makePart({ clickhouse, encoder: exporting.encoder }, { scope, chunk, format, folder }, signal);
    if (part !== undefined) parts.push(part);
    const left = await readdir(folder);
    if (left.join() !== (part === undefined ? '' : 'part.parquet')) throw new Error(`left behind: ${left}`);
    after = chunk.last;
  }
}

export async function metadataOf(path: string) {
  const metadata = await parquetMetadataAsync(await readArrayBuffer(path));
  return { metadata, names: parquetSchema(metadata).children.map((child) => child.element.name) };
}

/** Reads the rows of a file with a Parquet implementation that is independent of DuckDB. */
export async function rowsOf(path: string): Promise<Row[]> {
  const rows = (await parquetReadObjects({
    file: await readArrayBuffer(path),
    compressors,
    parsers: { timestampFromMicroseconds: (micros: bigint) => Number(micros) },
  } as never)) as Row[];
  return rows.map((row) =>
    Object.fromEntries(
      Object.entries(row).map(([name, value]) => [name, typeof value === 'bigint' ? Number(value) : (value ?? null)]),
    ),
  );
}

async function readArrayBuffer(path: string): Promise<ArrayBuffer> {
  const bytes = await readFile(path);
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
}

/**
 * Returns the response of the run query for every run of the scope, in the form that the files must contain, in scope
 * order.
 */
export async function queryExpectedRows(
  { reading }: ExportFixture,
  scope: ExportScope,
  version: ExportFormat['version'],
): Promise<Row[]> {
  const rows: Row[] = [];
  for (let cursor: string | undefined; ; ) {
    const answer = await queryRuns(
      reading.deps,
      {
        tenantId: scope.tenantId,
        projectIds: [scope.projectId],
        filter: { startedFromMicros: scope.window.fromMicros },
        selected: selectFields(exportFields.filter((name) => name !== 'tenant_id' && name !== 'is_root') as never),
        order: 'asc',
        limitRows: 1_000,
        cursor,
      },
      v1Envelope,
    );
    const page = splitJson(answer.toString('utf8'));
    for (const text of splitJson(page.get('runs') as string).values()) {
      const run = splitJson(text);
      rows.push(
        Object.fromEntries(exportFields.map((name) => [name, shownValue(name, run, version, scope)])) as unknown as Row,
      );
    }
    const { next } = JSON.parse(page.get('cursors') as string) as { next: string | null };
    if (next === null) break;
    cursor = next;
  }
  // The filter uses the key time, which is the last part of dotted_order.
  return rows.filter((row) => {
    const time = String(row.dotted_order).slice(-58, -37);
    const until = formatTime(scope.window.untilMicrosExclusive).replace(/[-:.]/g, '');
    return time < until;
  });
}

const jsonFields = new Set(['inputs', 'outputs', 'extra', 'events', 'feedback_stats']);
const types = new Map(runParquetColumns.map(({ name, type }) => [name as string, type]));

function shownValue(
  name: string,
  run: ReadonlyMap<string, string>,
  version: ExportFormat['version'],
  scope: ExportScope,
): unknown {
  if (name === 'tenant_id') return scope.tenantId;
  if (name === 'is_root')
    return JSON.parse(run.get('parent_run_id') as string) === null || run.get('id') === run.get('trace_id');
  const json = run.get(name) as string;
  if (json === 'null') return null;
  if (jsonFields.has(name)) return json;
  const type = types.get(name)?.[version];
  if (type === 'VARCHAR[]') return (JSON.parse(json) as unknown[]).map(listed(json));
  if (type?.startsWith('TIMESTAMP'))
    return Date.parse(`${JSON.parse(json).slice(0, 23)}Z`) * 1_000 + Number(json.slice(-4, -1));
  if (name === 'tags' || name === 'parent_run_ids') return json;
  const value = JSON.parse(json);
  return typeof value === 'string' ? replaceUnpairedSurrogates(value) : value;
}

/** Returns list elements that are not strings as their JSON text, as exports do. */
function listed(json: string) {
  const texts = [...splitJson(json).values()].map((text) => text.trim());
  return (value: unknown, index: number) =>
    value === null ? null : typeof value === 'string' ? replaceUnpairedSurrogates(value) : texts[index];
}

/** Replaces unpaired surrogates in a text, as UTF-8 encoding does. */
const replaceUnpairedSurrogates = (text: string) => Buffer.from(text, 'utf8').toString('utf8');
