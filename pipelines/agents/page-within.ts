import { fault, type RunlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';

/** Beside the columns of a page. */
interface Measured {
  readonly page_rows: number;
  readonly page_fits: boolean;
}

/**
 * The rows of `page`, a SELECT, in its order. They are measured as JSON where they lie, up to the first that is too much, so that what is
 * more than `limitBytes` is neither sent nor held; a row that is alone always is.
 *
 * @param beside a further part of the statement, which sees `page` and, in `measured`, whether `page_fits`
 * @throws ANSWER_TOO_LARGE
 */
export async function pageWithin<Row extends object>(
  sql: Sql,
  page: string,
  params: readonly unknown[],
  limitBytes: number = Number.MAX_SAFE_INTEGER,
  { beside }: { readonly beside?: string } = {},
): Promise<Row[]> {
  const rows = await sql.query<Row & Measured>(
    `WITH page AS MATERIALIZED (${page}),
     measured AS (
       SELECT page_rows, page_rows < 2 OR NOT EXISTS (
         SELECT FROM (
           SELECT sum(octet_length(row_to_json(page)::text)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes_so_far FROM page
         ) summed WHERE bytes_so_far > $${params.length + 1}
       ) AS page_fits
       FROM (SELECT count(*)::int AS page_rows FROM page) counted
     )
     ${beside === undefined ? '' : `, ${beside}`}
     SELECT page.*, page_rows, page_fits FROM measured LEFT JOIN page ON page_fits`,
    [...params, limitBytes],
  );
  if (rows[0]?.page_fits === false) throw tooLarge(limitBytes);
  return rows.flatMap(({ page_rows, page_fits: _, ...row }) => (page_rows === 0 ? [] : [row as unknown as Row]));
}

/** @throws ANSWER_TOO_LARGE where several rows have more bytes than an answer may have. */
export function requireWithin(rows: number, bytes: number, limitBytes: number): void {
  if (rows > 1 && bytes > limitBytes) throw tooLarge(limitBytes);
}

/** Of columns that are named as fields those that `select` asks for; at least the first. */
export function chosenColumns(columns: string, select: readonly string[] | null | undefined): string {
  if (!select) return columns;
  const all = columns.split(', ');
  const asked = all.filter((column) => select.includes(column));
  return asked.join(', ') || all[0]!;
}

function tooLarge(limitBytes: number): RunlakeError {
  return fault('ANSWER_TOO_LARGE', { limitBytes, limit: 'RUNLAKE_MAX_PAGE_BYTES' });
}
