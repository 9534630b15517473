import { buildFigureCondition, figureColumns } from '../descendant-figures.ts';
import { toDecodedText, toPairs, toPlainText, toReadableJson } from '../json-sql.ts';
import { isRootSql, runColumns, shownValues, startedAtMicros } from '../run-columns.ts';
import { getField, type PairFamily, type PlainField, type RunFilterField } from './fields.ts';
import { writePairGroup } from './pair-sql.ts';
import {
  buildComparisonSql,
  definePairs,
  type FilterContext,
  type OperatorAndValue,
  type RunComparison,
  type RunCondition,
} from './sql-terms.ts';

/** SQL for the value of each field as responses return it, over `runs FINAL`. */
const plainFieldSql: Readonly<Record<Exclude<PlainField, FigureField>, string>> = {
  id: 'id',
  trace_id: 'trace_id',
  session_id: 'session_id',
  parent_run_id: 'parent_run_id',
  reference_example_id: 'reference_example_id',
  ...shownValues,
  start_time: startedAtMicros,
  end_time: runColumns.endedAtMicros,
  first_token_time: runColumns.firstTokenTimeMicros,
  latency: `${runColumns.endedAtMicros} - ${startedAtMicros}`,
  error: `if(isNull(error), NULL, ${toPlainText(`ifNull(error, '')`)})`,
  is_root: isRootSql,
  execution_order: isRootSql,
  thread_id: runColumns.threadId,
};

type FigureField = keyof typeof figureColumns;

const isFigureField = (field: string): field is FigureField => Object.hasOwn(figureColumns, field);

const parameterTypes: Readonly<Record<string, string>> = {
  uuid: 'UUID',
  text: 'String',
  choice: 'String',
  tags: 'String',
  duration: 'Int64',
  time: 'Int64',
  boolean: 'Bool',
  number: 'Float64',
};

/** Texts that are searched by `search` without a field. Each is JSON, except the name. */
const searched = ['name', 'error', 'inputs', 'outputs'] as const;

/** Writes the SQL of one condition on a row of `runs FINAL`. The value of the SQL is 0 or 1, never null. */
export function writeCondition(condition: RunCondition, context: FilterContext): string {
  switch (condition.kind) {
    case 'and':
      return writeAnd(condition.terms, context);
    case 'or':
      return `(${condition.terms.map((term) => writeCondition(term, context)).join(' OR ')})`;
    case 'not':
      return `NOT ${writeCondition(condition.term, context)}`;
    case 'search':
      return writeSearch(condition.field, condition.text, context);
    case 'compare':
      return writeAnd([condition], context);
  }
}

/** Writes the terms of an `and`. Comparisons of the same family apply to the same pair. */
function writeAnd(terms: readonly RunCondition[], context: FilterContext): string {
  const groups = new Map<PairFamily, RunComparison[]>();
  const written: string[] = [];
  for (const term of terms) {
    const family = term.kind === 'compare' ? getField(term.field).family : undefined;
    if (term.kind !== 'compare') written.push(writeCondition(term, context));
    else if (family === undefined) written.push(writeComparison(term, context));
    else if (groups.has(family)) groups.get(family)?.push(term);
    else groups.set(family, [term]);
  }
  for (const [family, group] of groups) written.push(writePairGroup(family, group, context));
  return `(${written.join(' AND ')})`;
}

function writeComparison({ operator, field, value }: RunComparison, context: FilterContext): string {
  if (field === 'metadata') return writeMetadata(operator, String(value), context);
  if (isFigureField(field)) return writeFigure(field, { operator, value }, context);
  if (field === 'tags') return writeTags({ operator, value }, context);
  const plain = plainFieldSql[field as Exclude<PlainField, FigureField>];
  // An expression, in contrast to a column, is written only once.
  const sql = plain.includes('(') ? context.define(plain) : plain;
  if (value === null) return operator === 'eq' ? `isNull(${sql})` : `isNotNull(${sql})`;
  const type = parameterTypes[getField(field).type]!;
  const bound = getField(field).type === 'number' ? 'Bool' : type;
  const compared = buildComparisonSql(sql, operator === 'neq' ? 'eq' : operator, value, bound, context);
  return operator === 'neq' ? `NOT ${compared}` : compared;
}

/** Writes the comparison of a figure. If no model call states it, a token count is 0, and a cost is null. */
function writeFigure(field: FigureField, { operator, value }: OperatorAndValue, context: FilterContext): string {
  const isNegated = operator === 'neq';
  if (value === null) {
    const stated = buildFigureCondition(field, 'true', context.traceRange);
    return isNegated ? stated : `NOT ${stated}`;
  }
  const compared = buildComparisonSql('toFloat64(total)', isNegated ? 'eq' : operator, value, 'Float64', context);
  const matchesZero = field.endsWith('tokens') && isTrueForZero(isNegated ? 'eq' : operator, value);
  const sql = matchesZero
    ? `NOT ${buildFigureCondition(field, `NOT ${compared}`, context.traceRange)}`
    : buildFigureCondition(field, compared, context.traceRange);
  return isNegated ? `NOT ${sql}` : sql;
}

function isTrueForZero(operator: RunComparison['operator'], value: RunComparison['value']): boolean {
  if (Array.isArray(value)) return value.includes(0);
  const number = Number(value);
  const results = { eq: number === 0, gt: number < 0, gte: number <= 0, lt: number > 0, lte: number >= 0 };
  return results[operator as keyof typeof results];
}

function writeTags({ operator, value }: OperatorAndValue, context: FilterContext): string {
  const compared = operator === 'has' || operator === 'neq' ? 'eq' : operator;
  const exists = `arrayExists(tag -> ${buildComparisonSql('tag', compared, value, 'String', context)}, ${context.define(plainFieldSql.tags)})`;
  return operator === 'neq' ? `NOT ${exists}` : exists;
}

/**
 * Writes a condition on the metadata. `exists`: the key is present. `has`: every key and value of the object is
 * present.
 */
function writeMetadata(operator: string, value: string, context: FilterContext): string {
  const pairs = definePairs('metadata', context);
  if (operator === 'exists') return `arrayExists(pair -> pair.1 = ${context.bind('String', value)}, ${pairs})`;
  const required = context.define(toReadableJson(context.bind('String', value)));
  return `hasAll(${pairs}, ${toPairs(required)})`;
}

function writeSearch(field: RunFilterField | undefined, text: string, context: FilterContext): string {
  const names = field === undefined ? searched : [field as (typeof searched)[number]];
  const needle = context.bind('String', text);
  const found = names.map((name) => {
    // The text after its rank, empty if the run has none. The column without `ranked_` can be null, and would be copied
    // once more.
    const stored = context.define(`substring(ranked_${name}, 9)`);
    const contained = buildContainsSql(stored, text, needle);
    if (name === 'name') return contained;
    const decoded = buildContainsSql(context.define(toDecodedText(stored)), text, needle);
    const hasNoEscape = `position(${stored}, '\\\\') = 0`;
    if (canBeEscaped(text)) return `if(${hasNoEscape}, ${contained}, ${decoded})`;
    // Decoding copies a text several times, so only texts that may contain `text` are decoded.
    const hasEscape = `position(${stored}, '${isAscii(text) ? '\\\\u00' : '\\\\u'}') > 0`;
    return `((${contained} OR ${hasEscape}) AND (${hasNoEscape} OR ${decoded}))`;
  });
  return `(${found.join(' OR ')})`;
}

/** Returns whether JSON text can contain a character of `text` as an escape other than `\uXXXX`. */
function canBeEscaped(text: string): boolean {
  return JSON.stringify(text) !== `"${text}"` || text.includes('/');
}

const isAscii = (text: string) => Buffer.byteLength(text) === text.length;

/** Builds an SQL condition: a text contains another text, ignoring case. */
function buildContainsSql(text: string, needle: string, bound: string): string {
  if (isAscii(needle)) return `positionCaseInsensitive(${text}, ${bound}) > 0`;
  return `position(lowerUTF8(${text}), lowerUTF8(${bound})) > 0`;
}
