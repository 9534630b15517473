import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { jsonbText } from '../checkpoints/jsonb-text.ts';
import type { Conditions } from './item-columns.ts';

const comparisons: Readonly<Record<string, string>> = { $gt: '>', $gte: '>=', $lt: '<', $lte: '<=' };

/**
 * Adds the conditions of a filter on item values. Each field has a value that it must equal, or an object with the
 * operators `$eq`, `$ne`, `$gt`, `$gte`, `$lt` and `$lte`. Ordering comparisons match only values of the same JSON
 * type. A missing field matches only `$ne`.
 *
 * @throws STORE_FILTER_INVALID for any other operator
 */
export function filterItems(conditions: Conditions, filter: Readonly<Record<string, unknown>>): void {
  for (const [field, wanted] of Object.entries(filter)) {
    const value = `(searchable -> ${conditions.bind(field.replaceAll('\0', ''))}::text)`;
    const operators = parseOperators(wanted) ?? { $eq: wanted };
    for (const [operator, operand] of Object.entries(operators)) {
      const given = `${conditions.bind(jsonbText(JSON.stringify(operand ?? null)))}::jsonb`;
      const comparison = comparisons[operator];
      if (operator === '$eq') conditions.add(`${value} = ${given}`);
      else if (operator === '$ne') conditions.add(`${value} IS DISTINCT FROM ${given}`);
      else if (comparison !== undefined)
        conditions.add(`(jsonb_typeof(${value}) = jsonb_typeof(${given}) AND ${value} ${comparison} ${given})`);
      else throw runlakeError('STORE_FILTER_INVALID', { field, operator });
    }
  }
}

function parseOperators(wanted: unknown): Readonly<Record<string, unknown>> | undefined {
  if (typeof wanted !== 'object' || wanted === null || Array.isArray(wanted)) return undefined;
  const names = Object.keys(wanted);
  return names.length > 0 && names.some((name) => name.startsWith('$'))
    ? (wanted as Record<string, unknown>)
    : undefined;
}
