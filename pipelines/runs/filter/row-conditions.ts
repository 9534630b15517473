import { type RawBuilder, type SqlBool, sql } from 'kysely';
import { parseMarkedJson } from '../../../infra/json/marked-json.ts';
import { containsText } from '../../../infra/postgres/list-page.ts';
import { toJsonb } from '../../../infra/postgres/value-types.ts';
import { formatTimeWithZone } from '../../ingest/run-event/times.ts';
import type { Field, FieldType } from './fields.ts';
import { toLikePattern } from './sql-terms.ts';
import { type Comparison, type Condition, isNumeric, type Operator } from './syntax.ts';

/**
 * Translates conditions in the filter language to SQL for the rows of a Postgres table. The value of each SQL
 * expression is true or false, never null.
 */

/** Types of fields with a column of their own that is compared, each with its type in Postgres. */
const columnTypes = { uuid: 'uuid', time: 'timestamptz', text: 'text', choice: 'text' } as const satisfies Partial<
  Record<FieldType, string>
>;

type RowField = Field & { readonly type: keyof typeof columnTypes | 'object' | 'document' | 'pair-value' };

export interface FilteredTable<Name extends string> {
  readonly fields: Readonly<Record<Name, RowField>>;
  /** Columns of the fields whose column has another name than the field. */
  readonly columns?: Partial<Readonly<Record<Name, string>>>;
  /** Column of type `jsonb` with the metadata, for the fields `metadata`, `metadata_key` and `metadata_value`. */
  readonly metadataColumn: string;
}

export function writeRowCondition<Name extends string>(
  condition: Condition<Name>,
  table: FilteredTable<Name>,
): RawBuilder<SqlBool> {
  switch (condition.kind) {
    case 'and':
      return writeAnd(condition.terms, table);
    case 'or':
      return join(
        condition.terms.map((term) => writeRowCondition(term, table)),
        'OR',
      );
    case 'not':
      return sql`(NOT ${writeRowCondition(condition.term, table)})`;
    case 'search':
      return writeSearch(condition.field, condition.text, table);
    case 'compare':
      return writeAnd([condition], table);
  }
}

const join = (conditions: readonly RawBuilder<SqlBool>[], word: 'AND' | 'OR'): RawBuilder<SqlBool> =>
  sql`(${sql.join(conditions, word === 'AND' ? sql` AND ` : sql` OR `)})`;

/**
 * Translates the terms of an `and`. All its comparisons of metadata keys and values apply to the same key-value pair.
 */
function writeAnd<Name extends string>(
  terms: readonly Condition<Name>[],
  table: FilteredTable<Name>,
): RawBuilder<SqlBool> {
  const pairs: Comparison<Name>[] = [];
  const written: RawBuilder<SqlBool>[] = [];
  for (const term of terms) {
    if (term.kind !== 'compare') written.push(writeRowCondition(term, table));
    else if (table.fields[term.field].family === 'metadata') pairs.push(term);
    else written.push(writeComparison(term, table));
  }
  if (pairs.length > 0) written.push(...writePairs(pairs, table.metadataColumn));
  return join(written, 'AND');
}

function writeComparison<Name extends string>(
  { operator, field, value }: Comparison<Name>,
  { fields, columns, metadataColumn }: FilteredTable<Name>,
): RawBuilder<SqlBool> {
  const { type } = fields[field];
  if (type === 'object') {
    return operator === 'exists'
      ? writePairExists(metadataColumn, [{ operator: 'eq', field: 'metadata_key', value }])
      : sql`(${sql.ref(metadataColumn)} @> ${toJsonb(parseMarkedJson(String(value)) as object)}::jsonb)`;
  }
  const column = sql.ref(columns?.[field] ?? field);
  if (value === null) return operator === 'eq' ? sql`(${column} IS NULL)` : sql`(${column} IS NOT NULL)`;
  const format = (each: unknown) => (type === 'time' ? formatTimeWithZone(Number(each)) : toStorableText(each));
  const formatted = Array.isArray(value) ? value.map(format) : format(value);
  return writeNullSafeComparison(column, operator, formatted, sql.raw(columnTypes[type as keyof typeof columnTypes]));
}

const signs = { eq: '=', neq: '<>', gt: '>', gte: '>=', lt: '<', lte: '<=' } as const;

/**
 * Translates a comparison to SQL whose value is never null: if the left side is null, `neq` is true and every other
 * operator is false.
 */
function writeNullSafeComparison(
  left: RawBuilder<unknown>,
  operator: Operator,
  value: unknown,
  type: RawBuilder<unknown>,
): RawBuilder<SqlBool> {
  if (operator === 'in') return sql`coalesce(${left} = ANY (${value}::${type}[]), false)`;
  if (operator === 'like') return sql`coalesce(${left} LIKE ${toLikePattern(toStorableText(value))}::text, false)`;
  const sign = sql.raw(signs[operator as keyof typeof signs]);
  return sql`coalesce(${left} ${sign} ${value}::${type}, ${sql.raw(String(operator === 'neq'))})`;
}

/**
 * Translates the comparisons of one `and` that apply to the keys and values of metadata:
 *   - `neq` on the key means that no pair has this key;
 *   - if at least one of the other comparisons is not `neq`, all of these comparisons apply to the same pair;
 *   - otherwise, each `neq` means that no pair has this value.
 */
function writePairs(group: readonly Comparison<string>[], metadataColumn: string): RawBuilder<SqlBool>[] {
  const isAbsentKey = ({ operator, field }: Comparison<string>) => operator === 'neq' && field === 'metadata_key';
  const others = group.filter((comparison) => !isAbsentKey(comparison));
  const appliesToOnePair = others.some(({ operator }) => operator !== 'neq');
  const absent = [...group.filter(isAbsentKey), ...(appliesToOnePair ? [] : others)];
  return [
    ...(appliesToOnePair ? [writePairExists(metadataColumn, others)] : []),
    ...absent.map((each) => sql<SqlBool>`(NOT ${writePairExists(metadataColumn, [{ ...each, operator: 'eq' }])})`),
  ];
}

type PairComparison = Pick<Comparison<string>, 'operator' | 'field' | 'value'>;

/**
 * Returns the condition that all comparisons apply to some key-value pair of the metadata. The key of a nested value is
 * its path, joined by dots; the items of a list have the key of the list. Pairs are listed only for rows whose JSON text
 * contains what it must contain, because listing them takes much longer.
 */
function writePairExists(metadataColumn: string, comparisons: readonly PairComparison[]): RawBuilder<SqlBool> {
  const column = sql.ref(metadataColumn);
  const exists = sql<SqlBool>`EXISTS (
  WITH RECURSIVE pairs (key, value) AS (
    SELECT key, value FROM jsonb_each(${column})
    UNION ALL
    SELECT pairs.key || coalesce('.' || inner_pairs.key, ''), inner_pairs.value FROM pairs CROSS JOIN LATERAL (
      SELECT key, value FROM jsonb_each(CASE jsonb_typeof(pairs.value) WHEN 'object' THEN pairs.value ELSE '{}' END)
      UNION ALL
      SELECT NULL, value FROM jsonb_array_elements(CASE jsonb_typeof(pairs.value) WHEN 'array' THEN pairs.value ELSE '[]' END)
    ) AS inner_pairs
  ) SELECT FROM pairs WHERE ${join(comparisons.map(writePair), 'AND')})`;
  const necessary = comparisons.flatMap((comparison) => {
    const patterns = listJsonParts(comparison)?.map((part) => `%${part.replace(/[\\%_]/g, '\\$&')}%`);
    return patterns ? [sql<SqlBool>`${column}::text LIKE ANY (${patterns}::text[])`] : [];
  });
  return necessary.length === 0 ? exists : sql`(CASE WHEN ${join(necessary, 'AND')} THEN ${exists} ELSE false END)`;
}

/**
 * Returns parts of JSON text, one of which the text of metadata contains if one of its pairs satisfies the comparison.
 * Returns undefined if no such parts are known. Postgres escapes characters of JSON text as JavaScript does.
 */
function listJsonParts({ operator, field, value }: PairComparison): string[] | undefined {
  const values = [value].flat();
  if (operator !== 'eq' && operator !== 'in') return undefined;
  // Equal numbers may have different texts.
  if (field === 'metadata_value' && values.some(isNumeric)) return undefined;
  const escaped = values.map((each) => JSON.stringify(toStorableText(each)).slice(1, -1));
  // A key may contain dots itself, so it ends at least with what follows the last dot of the path.
  return field === 'metadata_key' ? escaped.map((path) => `${path.slice(path.lastIndexOf('.') + 1)}": `) : escaped;
}

/** Replaces characters that Postgres cannot store, in the same way as `toJsonb`. */
const toStorableText = (value: unknown) => String(value).replace(/[\0\p{Surrogate}]/gu, '\ufffd');

/** SQL for the plain text of a value; null for objects and lists. */
const valueTextSql = sql`(CASE WHEN jsonb_typeof(pairs.value) IN ('object', 'array') THEN NULL
  ELSE coalesce(pairs.value #>> '{}', 'null') END)`;
/** SQL for the numeric value of a JSON number or of a text that contains a number; null for all other values. */
const valueNumberSql = sql`(CASE WHEN ${valueTextSql} ~ '^-?[0-9]{1,30}([.][0-9]{1,30})?([eE][+-]?[0-9]{1,2})?$'
  THEN ${valueTextSql}::numeric END)`;
const [textType, numberType] = [sql.raw('text'), sql.raw('numeric')];

function writePair({ operator, field, value }: PairComparison): RawBuilder<SqlBool> {
  if (field === 'metadata_key')
    return writeNullSafeComparison(
      sql`pairs.key`,
      operator,
      Array.isArray(value) ? value.map(toStorableText) : toStorableText(value),
      textType,
    );
  if (!Array.isArray(value)) {
    return isNumeric(value)
      ? writeNullSafeComparison(valueNumberSql, operator, String(value), numberType)
      : writeNullSafeComparison(valueTextSql, operator, toStorableText(value), textType);
  }
  const numbers = value.filter(isNumeric).map(String);
  const texts = value.filter((item) => !isNumeric(item)).map(toStorableText);
  return join(
    [
      writeNullSafeComparison(valueNumberSql, 'in', numbers, numberType),
      writeNullSafeComparison(valueTextSql, 'in', texts, textType),
    ],
    'OR',
  );
}

/**
 * Builds a case-insensitive search for a text in one field, or in all fields with text. Documents are JSON text, so the
 * condition searches for the text both with and without escapes of non-ASCII characters.
 */
function writeSearch<Name extends string>(
  field: Name | undefined,
  text: string,
  { fields, columns }: FilteredTable<Name>,
): RawBuilder<SqlBool> {
  const json = JSON.stringify(text).slice(1, -1);
  const ascii = json.replace(/[\u0080-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const names =
    field === undefined ? (Object.keys(fields) as Name[]).filter((name) => fields[name].isSearchable) : [field];
  return join(
    names.flatMap((name) => {
      const forms = fields[name].type === 'text' ? [toStorableText(text)] : [...new Set([json, ascii])];
      return forms.map((form) => containsText(sql`coalesce(${sql.ref(columns?.[name] ?? name)}::text, '')`, form));
    }),
    'OR',
  );
}
