import { type RunlakeError, runlakeError } from '../errors/runlake-error.ts';
import { reserveMemory } from '../fairness/tenant-context.ts';
import type { Sql } from './database.ts';

/**
 * Maximum number of JSON values of a page of several rows: more of them block the event loop for too long. The number
 * is estimated from above by commas and opening brackets, also of texts; an empty object in a list counts twice.
 */
const maxPageValues = 4_000_000;
/**
 * Heap bytes of a page at most: for each of its bytes (text of the columns, parsed values, response, its encoded copy),
 * and for each of its values, measured with empty objects.
 */
const heapBytes = { perByte: 4, perValue: 60 };
/** Heap bytes for which a page does not reserve memory. */
const unreservedHeapBytes = 4 * 1024 ** 2;

/** Columns that the statement adds to those of the page. */
interface PageMeasurement {
  readonly page_rows: number;
  readonly page_is_too_large: boolean;
  /** Heap bytes that the page needs; of a page that is too large, only of its first rows. */
  readonly page_heap_bytes: number;
  /** Whether the rows of the page are returned. */
  readonly page_fits: boolean;
}

/**
 * Returns the rows of the SELECT `page`, in its order. Postgres measures the rows as JSON and returns none of them if
 * together they exceed `limitBytes` or have too many values, so that Runlake never receives a page that is too large. A
 * page of one row is never too large. A page for which no memory is reserved yet is measured first, then read.
 *
 * @param cte an additional CTE; it can read `page` and `measured.page_fits`
 * @throws ANSWER_TOO_LARGE; errors of {@link reserveMemory}
 */
export async function queryPageWithinLimit<Row extends object>(
  sql: Sql,
  page: string,
  params: readonly unknown[],
  limitBytes: number = Number.MAX_SAFE_INTEGER,
  { cte }: { readonly cte?: string } = {},
): Promise<Row[]> {
  const [bytes, values, reserved] = [1, 2, 3].map((index) => `$${params.length + index}::int8`);
  const isTooLarge = `page_rows > 1 AND (bytes_so_far > ${bytes} OR values_so_far > ${values})`;
  // OFFSET 0 prevents that Postgres formats each row several times.
  const statement = `WITH page AS MATERIALIZED (${page}),
     measured AS (
       SELECT *, NOT page_is_too_large AND page_heap_bytes <= ${reserved} AS page_fits FROM (
         SELECT page_rows, ${isTooLarge} AS page_is_too_large,
           coalesce(${heapBytes.perByte} * bytes_so_far + ${heapBytes.perValue} * values_so_far, 0) AS page_heap_bytes
         FROM (SELECT count(*)::int AS page_rows FROM page) counted LEFT JOIN LATERAL (
           SELECT bytes_so_far, values_so_far FROM (
             SELECT row_number() OVER so_far AS rows_so_far,
               sum(octet_length(json)) OVER so_far AS bytes_so_far,
               sum(octet_length(json) - octet_length(translate(json, '[{,', ''))) OVER so_far AS values_so_far
             FROM (SELECT row_to_json(page)::text AS json FROM page OFFSET 0) formatted
             WINDOW so_far AS (ROWS UNBOUNDED PRECEDING)
           ) summed
           WHERE rows_so_far = page_rows OR ${isTooLarge} LIMIT 1
         ) sums ON true
       ) sized
     )
     ${cte === undefined ? '' : `, ${cte}`}
     SELECT page.*, page_rows, page_is_too_large, page_heap_bytes, page_fits FROM measured LEFT JOIN page ON page_fits`;
  for (let reservedBytes = unreservedHeapBytes; ; ) {
    const rows = await sql.query<Row & PageMeasurement>(statement, [
      ...params,
      limitBytes,
      maxPageValues,
      reservedBytes,
    ]);
    const { page_rows, page_is_too_large, page_heap_bytes, page_fits } = rows[0]!;
    if (page_fits) return page_rows === 0 ? [] : rows.map(removeMeasurement);
    if (page_is_too_large) throw createTooLargeError(limitBytes);
    reserveMemory(page_heap_bytes - reservedBytes);
    reservedBytes = page_heap_bytes;
  }
}

function removeMeasurement<Row extends object>(measuredRow: Row & PageMeasurement): Row {
  const {
    page_rows: _rows,
    page_is_too_large: _limit,
    page_heap_bytes: _bytes,
    page_fits: _fits,
    ...row
  } = measuredRow;
  return row as unknown as Row;
}

/**
 * Checks the size of a page.
 *
 * @throws ANSWER_TOO_LARGE if there are several rows and together they exceed `limitBytes`.
 */
export function requireWithin(rows: number, bytes: number, limitBytes: number): void {
  if (rows > 1 && bytes > limitBytes) throw createTooLargeError(limitBytes);
}

/** Splits the keys of a page into chunks whose content is at most `maxBytes` together, or one row. */
export function splitIntoChunks<Key extends { readonly bytes: number }>(
  keys: readonly Key[],
  maxBytes: number,
): Key[][] {
  const chunks: Key[][] = [];
  let bytes = Infinity;
  for (const key of keys) {
    if (bytes + key.bytes > maxBytes) {
      chunks.push([]);
      bytes = 0;
    }
    chunks.at(-1)!.push(key);
    bytes += key.bytes;
  }
  return chunks;
}

/**
 * Returns the columns that `select` names, as an SQL list. Returns all columns if `select` is undefined, and the first
 * column if it names none.
 */
export function buildSelectList(columns: string, select: readonly string[] | null | undefined): string {
  if (!select) return columns;
  const all = columns.split(', ');
  const selected = all.filter((column) => select.includes(column));
  return selected.join(', ') || all[0]!;
}

function createTooLargeError(limitBytes: number): RunlakeError {
  return runlakeError('ANSWER_TOO_LARGE', { limitBytes });
}
