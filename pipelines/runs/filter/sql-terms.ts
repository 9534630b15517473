import type { QueryParameter } from '../../../infra/clickhouse/clickhouse.ts';
import { toPairs, toReadableJson } from '../json-sql.ts';
import type { RunFilterField } from './fields.ts';
import { type Comparison, type Condition, ExactNumber, type Operand } from './syntax.ts';

/** Conditions in the filter language; all of them must be true for a run. */
export interface RunFilterConditions {
  /** Conditions on the run itself. */
  readonly run: readonly RunCondition[];
  /** Conditions on the root of the run's trace. */
  readonly trace: readonly RunCondition[];
  /** Conditions each of which must be true for some run of the trace. */
  readonly tree: readonly RunCondition[];
}

export type RunCondition = Condition<RunFilterField>;
export type RunComparison = Comparison<RunFilterField>;
export type OperatorAndValue = Pick<RunComparison, 'operator' | 'value'>;

/** Collects what the query around a filter must provide: bound parameters, named expressions and the trace range. */
export class FilterContext {
  readonly params: Record<string, QueryParameter> = {};
  /**
   * Conditions on the key of `runs` for all runs of the traces that the query reads, joined by AND. If {@link
   * usesTraces} is true, the query must define the times of the traces that these conditions refer to.
   */
  readonly #traceRange: string;
  /** SQL condition: a merged row of runs or feedback is neither deleted nor expired. */
  readonly liveCondition: string;
  #usesTraces = false;
  #expressions = new Map<string, string>();
  #names = 0;

  constructor(traceRange: string, live: string) {
    this.#traceRange = traceRange;
    this.liveCondition = live;
  }

  get traceRange(): string {
    this.#usesTraces = true;
    return this.#traceRange;
  }

  /** Whether the SQL written so far contains {@link traceRange}. */
  get usesTraces(): boolean {
    return this.#usesTraces;
  }

  /** Writes a separate query, whose WITH clause defines the named expressions that its conditions use. */
  writeQuery(write: () => string): string {
    const outer = this.#expressions;
    this.#expressions = new Map();
    const sql = write();
    const list = this.expressions;
    this.#expressions = outer;
    return list.length === 0 ? sql : `WITH ${list.join(', ')} ${sql}`;
  }

  /** The named expressions of the outer query, for its WITH clause. */
  get expressions(): readonly string[] {
    return [...this.#expressions].map(([sql, name]) => `${sql} AS ${name}`);
  }

  /** Returns the name of an expression, which the WITH clause of the current query defines once. */
  define(sql: string): string {
    const name = this.#expressions.get(sql) ?? `filter_expression_${this.#names++}`;
    this.#expressions.set(sql, name);
    return name;
  }

  /**
   * Binds a value and returns its placeholder, so that text from a caller is never part of the SQL. The client encodes
   * texts as UTF-8, so that a lone surrogate becomes U+FFFD, as in stored texts.
   */
  bind(type: string, value: Operand | readonly Operand[]): string {
    const name = `filter_${Object.keys(this.params).length}`;
    const toParameter = (each: unknown) => (each instanceof ExactNumber ? BigInt(each.digits) : each);
    this.params[name] = (Array.isArray(value) ? value.map(toParameter) : toParameter(value)) as QueryParameter;
    return `{${name}:${type}}`;
  }
}

const signs = { eq: '=', gt: '>', gte: '>=', lt: '<', lte: '<=' } as const;

/**
 * Writes a comparison with a value that is not null. The result is 0 if the left side is null. `type` is the type of
 * the parameter.
 */
export function buildComparisonSql(
  left: string,
  operator: RunComparison['operator'],
  value: Operand | readonly Operand[],
  type: string,
  context: FilterContext,
): string {
  if (operator === 'in') return `ifNull(${left} IN ${context.bind(`Array(${type})`, value)}, 0)`;
  if (operator === 'like') return `ifNull(${left} LIKE ${context.bind('String', toLikePattern(String(value)))}, 0)`;
  const sign = signs[operator as keyof typeof signs];
  return `ifNull(${left} ${sign} ${context.bind(type, value)}, 0)`;
}

/**
 * Converts a pattern for `LIKE` in SQL. `%` stands for any text, `_` for one character, and a backslash makes the next
 * character literal.
 */
export function toLikePattern(pattern: string): string {
  let written = '';
  const characters = [...pattern];
  for (let at = 0; at < characters.length; at++) {
    const character = characters[at]!;
    if (character === '%' || character === '_') written += character;
    else {
      const literal = character === '\\' ? (characters[++at] ?? '\\') : character;
      written += '%_\\'.includes(literal) ? `\\${literal}` : literal;
    }
  }
  return written;
}

/** Returns the name of the pairs of the JSON object in a column, as {@link toPairs} lists them. */
export function definePairs(column: 'metadata' | 'inputs' | 'outputs', context: FilterContext): string {
  if (column !== 'metadata') return context.define(toPairs(context.define(toReadableJson(`ifNull(${column}, '{}')`))));
  const extra = context.define(toReadableJson(`ifNull(extra, '{}')`));
  return context.define(toPairs(context.define(`JSONExtractRaw(${extra}, 'metadata')`)));
}
