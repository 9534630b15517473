import { type RunlakeError, runlakeError } from '../errors/runlake-error.ts';
import type { Sql } from './database.ts';

/** Columns that the statement adds to those of the page. */
interface PageMeasurement {
  readonly page_rows: number;
  readonly page_fits: boolean;
}

/**
 * Returns the rows of the SELECT `page`, in its order. Postgres measures the rows as JSON and returns none of them if
 * together they exceed `limitBytes`, so that Runlake never receives a page that is too large. A page of one row is
 * never too large.
 *
 * @param cte an additional CTE; it can read `page` and `measured.page_fits`
 * @throws ANSWER_TOO_LARGE
 */
export async function queryPageWithinLimit<Row extends object>(
  sql: Sql,
  page: string,
  params: readonly unknown[],
  limitBytes: number = Number.MAX_SAFE_INTEGER,
  { cte }: { readonly cte?: string } = {},
): Promise<Row[]> {
  const rows = await sql.query<Row & PageMeasurement>(
    `WITH page AS MATERIALIZED (${page}),
     measured AS (
       SELECT page_rows, page_rows < 2 OR NOT EXISTS (
         SELECT FROM (
           SELECT sum(octet_length(row_to_json(page)::text)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes_so_far FROM page
         ) summed WHERE bytes_so_far > $${params.length + 1}
       ) AS page_fits
       FROM (SELECT count(*)::int AS page_rows FROM page) counted
     )
     ${cte === undefined ? '' : `, ${cte}`}
     SELECT page.*, page_rows, page_fits FROM measured LEFT JOIN page ON page_fits`,
    [...params, limitBytes],
  );
  if (rows[0]?.page_fits === false) throw createTooLargeError(limitBytes);
  return rows.flatMap(({ page_rows, page_fits: _, ...row }) => (page_rows === 0 ? [] : [row as unknown as Row]));
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
