import {
  type Compilable,
  DummyDriver,
  type Expression,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type RawBuilder,
  type SelectQueryBuilder,
  type SqlBool,
  sql,
} from 'kysely';
import type { Tables } from '../../schemas/tables.ts';
import { internals } from '../config/internals.ts';
import type { Sql } from './database.ts';
import { queryPageWithinLimit } from './page-within.ts';
import { toJsonb } from './value-types.ts';

/** Builder of typed statements. It has no connection; {@link fetchRows} executes the statements. */
export const statements = new Kysely<Tables>({
  dialect: {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (db) => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  },
});

/** Executes a statement. @throws errors of the database client. */
export function fetchRows<Row>(database: Sql, statement: Compilable<Row>): Promise<Row[]> {
  const { sql: text, parameters } = statement.compile();
  return database.query<Row>(text, parameters);
}

export interface PageRequest {
  /** Maximum number of rows of the page; at least 1. */
  readonly limit: number;
  readonly offset: number;
}

export interface Page<Row> {
  readonly rows: readonly Row[];
  /** Number of rows on all pages. */
  readonly total: number;
}

/**
 * The order of a list. The last expression must be unique, so that pages neither repeat nor skip a row. Expressions must
 * not be null, so that indexes fit both directions.
 */
export interface ListOrder {
  readonly by: readonly Expression<unknown>[];
  readonly descending: boolean;
}

/** Appends order, limit and offset to a query. */
export function limitToPage<DB, TB extends keyof DB, Row>(
  query: SelectQueryBuilder<DB, TB, Row>,
  { by, descending }: ListOrder,
  { limit, offset }: PageRequest,
): SelectQueryBuilder<DB, TB, Row> {
  const direction = descending ? 'desc' : 'asc';
  const orderedQuery = by.reduce<SelectQueryBuilder<DB, TB, Row>>(
    (partialQuery, expression) => partialQuery.orderBy(expression, direction),
    query,
  );
  return orderedQuery.limit(limit).offset(offset);
}

/**
 * Reads one page of a query. Counts all rows of the query only if their number does not follow from the page.
 *
 * @throws ANSWER_TOO_LARGE if the page has several rows that are too large for one response; errors of the database
 *   client.
 */
export async function listPage<DB, TB extends keyof DB, Row>(
  database: Sql,
  query: SelectQueryBuilder<DB, TB, Row>,
  order: ListOrder,
  page: PageRequest,
): Promise<Page<Row>> {
  const { sql: text, parameters } = limitToPage(query, order, page).compile();
  const rows = await queryPageWithinLimit<Row & object>(database, text, parameters, internals.maxPageBytes);
  const isLast = rows.length < page.limit && (rows.length > 0 || page.offset === 0);
  return { rows, total: isLast ? page.offset + rows.length : await countRows(database, query) };
}

export async function countRows<DB, TB extends keyof DB, Row>(
  database: Sql,
  query: SelectQueryBuilder<DB, TB, Row>,
): Promise<number> {
  const counted = query.clearSelect().select(sql<number>`count(*)`.as('rows')) as Compilable<{ rows: number }>;
  const [found] = await fetchRows(database, counted);
  return found?.rows ?? 0;
}

/**
 * Builds the condition that `column` is one of `values`. An empty list matches nothing. The list is one parameter, so
 * it may be long.
 */
export function isOneOf<T extends string>(
  column: Expression<T>,
  values: readonly T[],
  type: 'uuid' | 'text',
): RawBuilder<SqlBool> {
  return sql<SqlBool>`${column} = ANY (${values}::${sql.raw(type)}[])`;
}

/** Builds the condition that the text `column` contains `part`, ignoring case. */
export function containsText(column: Expression<string>, part: string): RawBuilder<SqlBool> {
  return sql<SqlBool>`strpos(lower(${column}), lower(${part}::text)) > 0`;
}

/** Builds the condition that the JSON object `column` contains all `pairs`, at any depth below the same keys. */
export function containsPairs(
  column: Expression<unknown>,
  pairs: Readonly<Record<string, unknown>>,
): RawBuilder<SqlBool> {
  return sql<SqlBool>`${column} @> ${toJsonb(pairs)}::jsonb`;
}
