/**
 * The syntax tree of a filter expression:
 *
 *     expression := ("and" | "or") "(" expression ("," expression)* ")" | "not" "(" expression ")"
 *                 | operator "(" field "," value ")" | "search" "(" [field ","] string ")"
 *     value      := string | number | "true" | "false" | "null" | "[" value ("," value)* "]"
 *
 * The parser makes an {@link Expression}; the checker makes a {@link Condition} of it, in which every field exists and
 * every value has the type of its field.
 */
import { isRunlakeError, type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';

export const operators = ['eq', 'neq', 'gt', 'gte', 'lt', 'lte', 'in', 'has', 'like', 'exists'] as const;
export type Operator = (typeof operators)[number];

/** Limits of an expression. `depth` counts nested `and`, `or` and `not`; `terms` counts comparisons and searches. */
export const filterLimits = { characters: 20_000, depth: 32, terms: 100, listItems: 1_000 } as const;

/** A part of an expression, with its offset in the text in UTF-16 code units. */
interface Positioned {
  readonly at: number;
}

export type Scalar = string | number | boolean | null;

export interface Literal extends Positioned {
  readonly value: Scalar | readonly Literal[];
  /** The number as it was written, if a JavaScript number may lose digits of it. */
  readonly digits?: string;
}

/** A number that a JavaScript number may not represent exactly, such as 1234567890123456789. */
export class ExactNumber {
  readonly digits: string;

  constructor(digits: string) {
    this.digits = digits;
  }

  toString(): string {
    return this.digits;
  }
}

export const isNumeric = (value: unknown): value is number | ExactNumber =>
  typeof value === 'number' || value instanceof ExactNumber;

/** A field name as written, with or without quotes. */
export interface FieldName extends Positioned {
  readonly name: string;
}

export type Expression = Positioned &
  (
    | { readonly kind: 'and' | 'or'; readonly terms: readonly Expression[] }
    | { readonly kind: 'not'; readonly term: Expression }
    | { readonly kind: 'compare'; readonly operator: Operator; readonly field: FieldName; readonly value: Literal }
    | { readonly kind: 'search'; readonly field: FieldName | undefined; readonly text: Literal }
  );

/** A checked value. Only comparisons of the values of pairs, such as `metadata_value`, contain exact numbers. */
export type Operand = Scalar | ExactNumber;

/**
 * A checked comparison. Times and durations are in microseconds, and ids are in lower case; the value of `in` is a
 * list.
 */
export interface Comparison<Field extends string> {
  readonly kind: 'compare';
  readonly operator: Operator;
  readonly field: Field;
  readonly value: Operand | readonly Operand[];
}

/** A checked expression over the fields of a resource. */
export type Condition<Field extends string = string> =
  | { readonly kind: 'and' | 'or'; readonly terms: readonly Condition<Field>[] }
  | { readonly kind: 'not'; readonly term: Condition<Field> }
  | Comparison<Field>
  | { readonly kind: 'search'; readonly field: Field | undefined; readonly text: string };

/**
 * Creates the error for an invalid filter.
 *
 * @returns INVALID_FILTER for the position `at`; the message counts positions from 1. {@link addParameterName} completes
 *   the error.
 */
export function createFilterError(at: number, reason: string): RunlakeError {
  return runlakeError('INVALID_FILTER', { parameter: 'filter', position: at + 1, reason });
}

/** Returns the error with the name of the parameter that contains the expression. */
export function addParameterName(error: unknown, parameter: string): unknown {
  if (!isRunlakeError(error) || error.code !== 'INVALID_FILTER') return error;
  return runlakeError('INVALID_FILTER', { ...error.parameters, parameter });
}
