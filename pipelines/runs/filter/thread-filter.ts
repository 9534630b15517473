/** Filters on the summaries of threads, in the filter language of run queries with fields of their own. */
import { checkFilter } from './check-filter.ts';
import type { Field } from './fields.ts';
import { parseFilter } from './parse-filter.ts';
import { buildComparisonSql, type FilterContext } from './sql-terms.ts';
import { addParameterName, type Comparison, type Condition, createFilterError } from './syntax.ts';

/** The attributes of threads by which the public service filters. */
const threadFilterFields = {
  thread_id: { type: 'text' },
  /** Number of traces. */
  turn_count: { type: 'number' },
  num_errored_turns: { type: 'number' },
  /** Time from the first start to the last end. */
  thread_duration: { type: 'duration', isNullable: true },
  trace_latency_p50: { type: 'duration', isNullable: true },
  trace_latency_p99: { type: 'duration', isNullable: true },
  total_tokens: { type: 'number' },
  total_cost: { type: 'number', isNullable: true },
} as const satisfies Record<string, Field>;

export type ThreadField = keyof typeof threadFilterFields;
/** A checked expression without `search`: summaries have no text. */
export type ThreadCondition =
  | { readonly kind: 'and' | 'or'; readonly terms: readonly ThreadCondition[] }
  | { readonly kind: 'not'; readonly term: ThreadCondition }
  | Comparison<ThreadField>;

/**
 * Parses and checks an expression.
 *
 * @param parameter Name of the request parameter, for the error.
 * @throws INVALID_FILTER
 */
export function parseThreadFilter(parameter: string, text: string): ThreadCondition {
  try {
    return refuseSearch(checkFilter(parseFilter(text), threadFilterFields));
  } catch (error) {
    throw addParameterName(error, parameter);
  }
}

function refuseSearch(condition: Condition<ThreadField>): ThreadCondition {
  switch (condition.kind) {
    case 'and':
    case 'or':
      return { kind: condition.kind, terms: condition.terms.map(refuseSearch) };
    case 'not':
      return { kind: 'not', term: refuseSearch(condition.term) };
    case 'compare':
      return condition;
    case 'search':
      throw createFilterError(0, 'found `search`, but threads have no text to search');
  }
}

export function listThreadFields(condition: ThreadCondition): ReadonlySet<ThreadField> {
  if (condition.kind === 'compare') return new Set([condition.field]);
  const terms = condition.kind === 'not' ? [condition.term] : condition.terms;
  return new Set(terms.flatMap((term) => [...listThreadFields(term)]));
}

/**
 * Writes the SQL of a condition on rows that have a column for each field; durations are in microseconds. The value of the
 * SQL is 0 or 1, never null.
 */
export function writeThreadCondition(condition: ThreadCondition, context: FilterContext): string {
  switch (condition.kind) {
    case 'and':
    case 'or':
      return `(${condition.terms.map((term) => writeThreadCondition(term, context)).join(` ${condition.kind.toUpperCase()} `)})`;
    case 'not':
      return `NOT ${writeThreadCondition(condition.term, context)}`;
    case 'compare':
      return writeComparison(condition, context);
  }
}

const parameterTypes: Readonly<Record<string, string>> = { text: 'String', number: 'Float64', duration: 'Int64' };

function writeComparison({ operator, field, value }: Comparison<ThreadField>, context: FilterContext): string {
  if (value === null) return operator === 'eq' ? `isNull(${field})` : `isNotNull(${field})`;
  const type = parameterTypes[threadFilterFields[field].type]!;
  const compared = buildComparisonSql(field, operator === 'neq' ? 'eq' : operator, value, type, context);
  return operator === 'neq' ? `NOT ${compared}` : compared;
}
