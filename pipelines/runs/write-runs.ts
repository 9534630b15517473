import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { readNullableTextRows } from '../../infra/clickhouse/nullable-text-rows.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import { liveCondition } from '../retention/lifetimes.ts';
import { type RunColumn, type RunKey, runColumns } from './run-columns.ts';
import type { RelatedData } from './run-fields.ts';
import { buildKeysCondition } from './run-scope.ts';
import type { Selection } from './run-select.ts';

/** Selected columns of one run. */
export interface TracedRunRow {
  readonly key: RunKey;
  /** Returns the stored bytes; undefined if the column is null. */
  bytes(column: RunColumn): Buffer | undefined;
  text(column: RunColumn): string | undefined;
  number(column: RunColumn): number | undefined;
}

const keyColumns = ['id', 'traceId', 'projectId', 'keyTimeMicros'] as const satisfies RunColumn[];

/**
 * Step 2 of reading a page: reads the requested columns of exactly these runs, in the order of `keys`. Runs that were
 * deleted or have expired since step 1 are omitted.
 *
 * @throws errors of ClickHouse.
 */
export async function readRunRows(
  clickhouse: ClickHouse,
  tenantId: string,
  keys: readonly RunKey[],
  wanted: ReadonlySet<RunColumn>,
): Promise<TracedRunRow[]> {
  if (keys.length === 0) return [];
  const columns = [...new Set<RunColumn>([...keyColumns, ...wanted])];
  const { sql, ...binding } = buildKeysCondition(tenantId, keys);
  const response = await clickhouse.queryText({
    ...binding,
    name: 'read-runs',
    settings: lookupSettings,
    sql: `SELECT ${columns.map((column) => `CAST(${runColumns[column]} AS Nullable(String))`).join(', ')}
          FROM runs FINAL PREWHERE ${sql} WHERE ${liveCondition}`,
    format: 'RowBinary',
  });
  const indexes = new Map(columns.map((column, index) => [column, index]));
  const rows = new Map<string, TracedRunRow>();
  for (const values of readNullableTextRows(response, columns.length)) {
    const row = toRunRow(values, indexes);
    rows.set(buildRunIdentity(row.key), row);
  }
  return keys.flatMap((key) => rows.get(buildRunIdentity(key)) ?? []);
}

function toRunRow(values: readonly (Buffer | undefined)[], indexes: ReadonlyMap<RunColumn, number>): TracedRunRow {
  const bytes = (column: RunColumn) => values[indexes.get(column) ?? -1];
  const text = (column: RunColumn) => bytes(column)?.toString('utf8');
  const number = (column: RunColumn) => {
    const digits = text(column);
    return digits === undefined ? undefined : Number(digits);
  };
  const key: RunKey = {
    runId: text('id') ?? '',
    traceId: text('traceId') ?? '',
    projectId: text('projectId') ?? '',
    startTimeMicros: number('keyTimeMicros') ?? 0,
  };
  return { key, bytes, text, number };
}

function buildRunIdentity({ projectId, startTimeMicros, traceId, runId }: RunKey): string {
  return `${runId}${traceId}${projectId}${startTimeMicros}`;
}

/** Builds JSON text. Stored values are added as unchanged bytes; consecutive strings are joined. */
export class JsonChunks {
  readonly #chunks: Buffer[] = [];
  #pending = '';

  add(value: string | Buffer): void {
    if (typeof value === 'string') {
      this.#pending += value;
      return;
    }
    this.#flush();
    this.#chunks.push(value);
  }

  /** Returns the whole text, in UTF-8. */
  toBuffer(): Buffer {
    this.#flush();
    return Buffer.concat(this.#chunks);
  }

  #flush(): void {
    if (this.#pending !== '') this.#chunks.push(Buffer.from(this.#pending));
    this.#pending = '';
  }
}

/** Appends one run as a JSON object with the selected fields. */
export function writeRun(
  json: JsonChunks,
  run: TracedRunRow,
  { form, fields }: Pick<Selection, 'form' | 'fields'>,
  related: RelatedData,
): void {
  let before = '{';
  for (const name of fields) {
    json.add(`${before}"${name}":`);
    json.add(form[name]?.json(run, related) ?? 'null');
    before = ',';
  }
  json.add('}');
}
