import type { RunlakeError } from '../../../infra/errors/runlake-error.ts';
import { suggestName } from '../../../infra/errors/suggest-name.ts';
import { scanJson } from '../../ingest/json/scan.ts';
import { parseTime } from '../../ingest/run-event/times.ts';
import { parseUuid } from '../../ingest/run-event/uuid.ts';
import { type Field, operatorsByType, runFilterFields } from './fields.ts';
import {
  type Comparison,
  type Condition,
  createFilterError,
  ExactNumber,
  type Expression,
  type FieldName,
  type Literal,
  type Operand,
  type Scalar,
} from './syntax.ts';

/**
 * Checks that every field of an expression on runs exists, and that its operators and values fit the type of the field.
 *
 * @throws INVALID_FILTER
 */
export function checkRunFilter(expression: Expression): Condition<keyof typeof runFilterFields> {
  return checkFilter(expression, runFilterFields);
}

export function checkFilter<Name extends string>(
  expression: Expression,
  fields: Readonly<Record<Name, Field>>,
): Condition<Name> {
  switch (expression.kind) {
    case 'and':
    case 'or':
      return { kind: expression.kind, terms: expression.terms.map((term) => checkFilter(term, fields)) };
    case 'not':
      return { kind: 'not', term: checkFilter(expression.term, fields) };
    case 'search':
      return {
        kind: 'search',
        field: expression.field && checkSearchableField(expression.field, fields),
        text: String(expression.text.value),
      };
    case 'compare':
      return checkComparison(expression, fields);
  }
}

function findField<Name extends string>({ name, at }: FieldName, fields: Readonly<Record<Name, Field>>): Name {
  if (Object.hasOwn(fields, name)) return name as Name;
  const names = Object.keys(fields);
  const suggestion = suggestName(name, names);
  throw createFilterError(
    at,
    `unknown field \`${name.slice(0, 64)}\`${suggestion || `, expected one of ${names.join(', ')}`}`,
  );
}

function checkSearchableField<Name extends string>(written: FieldName, fields: Readonly<Record<Name, Field>>): Name {
  const name = findField(written, fields);
  if (fields[name].isSearchable) return name;
  const searchable = Object.keys(fields).filter((each) => fields[each as Name].isSearchable);
  throw createFilterError(written.at, `found \`${name}\`, expected a field with text: ${searchable.join(', ')}`);
}

function checkComparison<Name extends string>(
  { operator, field: written, value, at }: Expression & { kind: 'compare' },
  fields: Readonly<Record<Name, Field>>,
): Comparison<Name> {
  const name = findField(written, fields);
  const field = fields[name];
  const allowed = operatorsByType[field.type];
  if (!allowed.includes(operator)) {
    const expected = [...allowed, ...(field.isSearchable ? ['search'] : [])];
    throw createFilterError(at, `found \`${operator}\`, expected an operator of \`${name}\`: ${expected.join(', ')}`);
  }
  const check = (literal: Literal) => checkValue(literal, name, field);
  if (operator === 'in') {
    if (!isList(getLiteralValue(value))) throw createValueError(value, name, 'a list in `[ ]`');
    return { kind: 'compare', operator, field: name, value: (value.value as readonly Literal[]).map(check) };
  }
  if (operator === 'like' || field.type === 'tags' || operator === 'exists') {
    if (typeof value.value !== 'string') throw createValueError(value, name, 'a string');
    return { kind: 'compare', operator, field: name, value: value.value };
  }
  if (value.value === null && field.isNullable && (operator === 'eq' || operator === 'neq'))
    return { kind: 'compare', operator, field: name, value: null };
  const isOrderComparison = operator !== 'eq' && operator !== 'neq';
  if (field.type === 'pair-value' && isOrderComparison && typeof value.value !== 'number')
    throw createValueError(value, name, 'a number');
  return { kind: 'compare', operator, field: name, value: check(value) };
}

const getLiteralValue = (literal: Literal): Scalar | readonly Literal[] => literal.value;
const isList = (value: Scalar | readonly Literal[]): value is readonly Literal[] => Array.isArray(value);

/** Returns the value in the form of {@link Comparison}. */
function checkValue(literal: Literal, name: string, field: Field): Operand {
  const { value } = literal;
  const createExpectationError = (expected: string) => createValueError(literal, name, expected);
  switch (field.type) {
    case 'text':
    case 'tags':
      if (typeof value !== 'string') throw createExpectationError('a string');
      return value;
    case 'uuid': {
      const id = typeof value === 'string' ? parseUuid(value) : undefined;
      if (id === undefined) throw createExpectationError('a UUID');
      return id;
    }
    case 'choice': {
      const choices = field.choices ?? [];
      if (typeof value === 'string' && choices.includes(value)) return value;
      const suggestion = typeof value === 'string' ? suggestName(value, choices) : '';
      throw createExpectationError(`one of ${choices.map((choice) => JSON.stringify(choice)).join(', ')}${suggestion}`);
    }
    case 'boolean':
      if (typeof value !== 'boolean') throw createExpectationError('`true` or `false`');
      return value;
    case 'number':
      return checkNumber(literal, name, field);
    case 'duration': {
      const micros = typeof value === 'number' ? value * 1_000_000 : parseDuration(value);
      if (micros === undefined)
        throw createExpectationError('a number of seconds, or a duration such as "1.5s" in ms, s, m or h');
      return Math.max(-maxMicros, Math.min(maxMicros, Math.round(micros)));
    }
    case 'time': {
      const micros = typeof value === 'string' ? parseTime(value) : undefined;
      if (micros === undefined) throw createExpectationError('an ISO 8601 date and time in a string');
      return micros;
    }
    case 'object': {
      const object = typeof value === 'string' ? parseJson(value) : undefined;
      if (typeof object !== 'object' || object === null || Array.isArray(object))
        throw createExpectationError(`a JSON object of at most ${maxObjectDepth} levels in a string`);
      return value as string;
    }
    case 'pair-value':
      if (isList(value) || value === null) throw createExpectationError('a string, a number, `true` or `false`');
      return literal.digits === undefined ? value : new ExactNumber(literal.digits);
    case 'document':
      throw createExpectationError('no value');
  }
}

function checkNumber(literal: Literal, name: string, field: Field): number {
  const { value } = literal;
  // A score may be sent as a boolean; it is stored as 1 or 0.
  if (field.family === 'feedback' && typeof value === 'boolean') return Number(value);
  if (typeof value !== 'number') throw createValueError(literal, name, 'a number');
  if (name === 'execution_order' && value !== 1) throw createValueError(literal, name, '1, which means a root run');
  return value;
}

const maxMicros = Number.MAX_SAFE_INTEGER;
const durationPattern = /^([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h)$/;
const unitMicros: Readonly<Record<string, number>> = { ms: 1_000, s: 1_000_000, m: 60_000_000, h: 3_600_000_000 };

function parseDuration(value: Literal['value']): number | undefined {
  const match = typeof value === 'string' ? durationPattern.exec(value) : null;
  return match === null ? undefined : Number(match[1]) * unitMicros[match[2]!]!;
}

/** Maximum nesting depth of an object in a filter. */
const maxObjectDepth = 100;

function parseJson(text: string): unknown {
  try {
    const bytes = Buffer.from(text);
    scanJson(bytes, 0, bytes.length, { part: 'filter', maxDepth: maxObjectDepth });
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function createValueError(literal: Literal, field: string, expected: string): RunlakeError {
  const { value } = literal;
  const found = isList(value) ? 'a list' : `\`${JSON.stringify(value).slice(0, 64)}\``;
  return createFilterError(literal.at, `found ${found} for \`${field}\`, expected ${expected}`);
}
