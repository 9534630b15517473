import { type RawBuilder, type SqlBool, sql } from 'kysely';
import { containsText } from '../../infra/postgres/list-page.ts';
import { toJsonb } from '../../infra/postgres/value-types.ts';
import { formatTimeWithZone } from '../ingest/run-event/times.ts';
import { checkFilter } from '../runs/filter/check-filter.ts';
import type { Field } from '../runs/filter/fields.ts';
import { parseFilter } from '../runs/filter/parse-filter.ts';
import { toLikePattern } from '../runs/filter/sql-terms.ts';
import { addParameterName, type Comparison, type Condition } from '../runs/filter/syntax.ts';

/**
 * Filters for examples. They use the filter language of run queries with other fields, and are translated to SQL for
 * Postgres.
 */

const exampleFilterFields = {
  id: { type: 'uuid' },
  created_at: { type: 'time' },
  modified_at: { type: 'time' },
  source_run_id: { type: 'uuid', isNullable: true },
  metadata: { type: 'object', isSearchable: true },
  inputs: { type: 'document', isSearchable: true },
  outputs: { type: 'document', isSearchable: true },
  metadata_key: { type: 'text', family: 'metadata', isKey: true },
  metadata_value: { type: 'pair-value', family: 'metadata' },
} as const satisfies Record<string, Field>;

type FieldName = keyof typeof exampleFilterFields;
export type ExampleCondition = Condition<FieldName>;
type ExampleComparison = Comparison<FieldName>;

/** Parses and checks an expression. @throws INVALID_FILTER */
export const parseExampleFilter = (text: string) => parse(text, exampleFilterFields);

const { source_run_id: _, ...publicFilterFields } = exampleFilterFields;

/**
 * Like {@link parseExampleFilter}, but for readers of a shared dataset, who cannot filter by fields that they cannot
 * see.
 */
export const parsePublicExampleFilter = (text: string) => parse(text, publicFilterFields);

function parse(text: string, fields: Readonly<Partial<Record<FieldName, Field>>>): ExampleCondition {
  try {
    return checkFilter(parseFilter(text), fields as Readonly<Record<FieldName, Field>>);
  } catch (error) {
    throw addParameterName(error, 'filter');
  }
}

/**
 * Translates a condition on a row of `examples` to SQL. The value of the SQL expression is true or false, never null.
 */
export function writeExampleCondition(condition: ExampleCondition): RawBuilder<SqlBool> {
  switch (condition.kind) {
    case 'and':
      return writeAnd(condition.terms);
    case 'or':
      return join(condition.terms.map(writeExampleCondition), 'OR');
    case 'not':
      return sql`(NOT ${writeExampleCondition(condition.term)})`;
    case 'search':
      return writeSearch(condition.field, condition.text);
    case 'compare':
      return writeAnd([condition]);
  }
}

const join = (conditions: readonly RawBuilder<SqlBool>[], word: 'AND' | 'OR'): RawBuilder<SqlBool> =>
  sql`(${sql.join(conditions, word === 'AND' ? sql` AND ` : sql` OR `)})`;

/**
 * Translates the terms of an `and`. All its comparisons of metadata keys and values apply to the same key-value pair.
 */
function writeAnd(terms: readonly ExampleCondition[]): RawBuilder<SqlBool> {
  const pairs: ExampleComparison[] = [];
  const written: RawBuilder<SqlBool>[] = [];
  for (const term of terms) {
    if (term.kind !== 'compare') written.push(writeExampleCondition(term));
    else if (term.field === 'metadata_key' || term.field === 'metadata_value') pairs.push(term);
    else written.push(writeComparison(term));
  }
  if (pairs.length > 0) written.push(...writePairs(pairs));
  return join(written, 'AND');
}

function writeComparison({ operator, field, value }: ExampleComparison): RawBuilder<SqlBool> {
  if (field === 'metadata') {
    return operator === 'exists'
      ? writePairExists(sql`pairs.key = ${toStorableText(value)}`)
      : sql`(searchable @> ${toJsonb(JSON.parse(String(value)))}::jsonb)`;
  }
  const column = field === 'modified_at' ? sql.ref('valid_from') : sql.ref(field);
  if (value === null) return operator === 'eq' ? sql`(${column} IS NULL)` : sql`(${column} IS NOT NULL)`;
  const isTime = exampleFilterFields[field].type === 'time';
  const type = sql.raw(isTime ? 'timestamptz' : 'uuid');
  const format = (each: unknown) => (isTime ? formatTimeWithZone(Number(each)) : String(each));
  return writeNullSafeComparison(column, operator, Array.isArray(value) ? value.map(format) : format(value), type);
}

const signs = { eq: '=', neq: '<>', gt: '>', gte: '>=', lt: '<', lte: '<=' } as const;

/**
 * Translates a comparison to SQL whose value is never null: if the left side is null, `neq` is true and every other
 * operator is false.
 */
function writeNullSafeComparison(
  left: RawBuilder<unknown>,
  operator: ExampleComparison['operator'],
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
function writePairs(group: readonly ExampleComparison[]): RawBuilder<SqlBool>[] {
  const isAbsentKey = ({ operator, field }: ExampleComparison) => operator === 'neq' && field === 'metadata_key';
  const others = group.filter((comparison) => !isAbsentKey(comparison));
  const appliesToOnePair = others.some(({ operator }) => operator !== 'neq');
  const absent = [...group.filter(isAbsentKey), ...(appliesToOnePair ? [] : others)];
  return [
    ...(appliesToOnePair
      ? [
          writePairExists(
            join(
              others.map((each) => writePair(each, each.operator)),
              'AND',
            ),
          ),
        ]
      : []),
    ...absent.map((each) => sql<SqlBool>`(NOT ${writePairExists(writePair(each, 'eq'))})`),
  ];
}

/**
 * Returns the condition that some key-value pair of the metadata satisfies `condition`. The key of a nested value is
 * its path, joined by dots; the items of a list have the key of the list.
 */
const writePairExists = (condition: RawBuilder<SqlBool>): RawBuilder<SqlBool> => sql`EXISTS (
  WITH RECURSIVE pairs (key, value) AS (
    SELECT key, value FROM jsonb_each(searchable)
    UNION ALL
    SELECT pairs.key || coalesce('.' || inner_pairs.key, ''), inner_pairs.value FROM pairs CROSS JOIN LATERAL (
      SELECT key, value FROM jsonb_each(CASE jsonb_typeof(pairs.value) WHEN 'object' THEN pairs.value ELSE '{}' END)
      UNION ALL
      SELECT NULL, value FROM jsonb_array_elements(CASE jsonb_typeof(pairs.value) WHEN 'array' THEN pairs.value ELSE '[]' END)
    ) AS inner_pairs
  ) SELECT FROM pairs WHERE ${condition})`;

/** Replaces characters that Postgres cannot store, in the same way as `toJsonb`. */
const toStorableText = (value: unknown) => String(value).replace(/[\0\p{Surrogate}]/gu, '\ufffd');

/** SQL for the plain text of a value; null for objects and lists. */
const valueTextSql = sql`(CASE WHEN jsonb_typeof(pairs.value) IN ('object', 'array') THEN NULL
  ELSE coalesce(pairs.value #>> '{}', 'null') END)`;
/** SQL for the numeric value of a JSON number or of a text that contains a number; null for all other values. */
const valueNumberSql = sql`(CASE WHEN ${valueTextSql} ~ '^-?[0-9]{1,30}([.][0-9]{1,30})?([eE][+-]?[0-9]{1,2})?$'
  THEN ${valueTextSql}::numeric END)`;
const [textType, numberType] = [sql.raw('text'), sql.raw('numeric')];

function writePair({ field, value }: ExampleComparison, operator: ExampleComparison['operator']): RawBuilder<SqlBool> {
  if (field === 'metadata_key')
    return writeNullSafeComparison(
      sql`pairs.key`,
      operator,
      Array.isArray(value) ? value.map(toStorableText) : toStorableText(value),
      textType,
    );
  if (!Array.isArray(value)) {
    return typeof value === 'number'
      ? writeNullSafeComparison(valueNumberSql, operator, value, numberType)
      : writeNullSafeComparison(valueTextSql, operator, toStorableText(value), textType);
  }
  const numbers = value.filter((item) => typeof item === 'number');
  const texts = value.filter((item) => typeof item !== 'number').map(toStorableText);
  return join(
    [
      writeNullSafeComparison(valueNumberSql, 'in', numbers, numberType),
      writeNullSafeComparison(valueTextSql, 'in', texts, textType),
    ],
    'OR',
  );
}

const searchedColumns = ['inputs', 'outputs', 'metadata'] as const;

/**
 * Builds a case-insensitive search for a text in documents. Documents are stored as the JSON text that the client sent,
 * so the condition searches for the text both with and without escapes of non-ASCII characters.
 */
function writeSearch(field: FieldName | undefined, text: string): RawBuilder<SqlBool> {
  const json = JSON.stringify(text).slice(1, -1);
  const ascii = json.replace(/[\u0080-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const columns = field === undefined ? searchedColumns : [field];
  return join(
    columns.flatMap((column) =>
      [...new Set([json, ascii])].map((form) => containsText(sql`coalesce(${sql.ref(column)}, '')`, form)),
    ),
    'OR',
  );
}
