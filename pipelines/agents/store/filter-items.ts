import { fault } from '../../../infra/errors/runlake-error.ts';
import { jsonbText } from '../checkpoints/jsonb-text.ts';
import type { Conditions } from './item-columns.ts';

const comparisons: Readonly<Record<string, string>> = { $gt: '>', $gte: '>=', $lt: '<', $lte: '<=' };

/**
 * Adds what a filter asks of values: of each field that it is equal to something, or what `$eq`, `$ne`, `$gt`, `$gte`, `$lt` and
 * `$lte` say. Only values of one type are greater or smaller than each other; a field that is missing equals nothing.
 *
 * @throws STORE_FILTER_INVALID for another operator
 */
export function filterItems(conditions: Conditions, filter: Readonly<Record<string, unknown>>): void {
  for (const [field, wanted] of Object.entries(filter)) {
    const value = `(searchable -> ${conditions.bind(field.replaceAll('\0', ''))}::text)`;
    const operators = operatorsOf(wanted) ?? { $eq: wanted };
    for (const [operator, operand] of Object.entries(operators)) {
      const given = `${conditions.bind(jsonbText(JSON.stringify(operand ?? null)))}::jsonb`;
      const comparison = comparisons[operator];
      if (operator === '$eq') conditions.add(`${value} = ${given}`);
      else if (operator === '$ne') conditions.add(`${value} IS DISTINCT FROM ${given}`);
      else if (comparison !== undefined)
        conditions.add(`(jsonb_typeof(${value}) = jsonb_typeof(${given}) AND ${value} ${comparison} ${given})`);
      else throw fault('STORE_FILTER_INVALID', { field, operator });
    }
  }
}

function operatorsOf(wanted: unknown): Readonly<Record<string, unknown>> | undefined {
  if (typeof wanted !== 'object' || wanted === null || Array.isArray(wanted)) return undefined;
  const names = Object.keys(wanted);
  return names.length > 0 && names.some((name) => name.startsWith('$'))
    ? (wanted as Record<string, unknown>)
    : undefined;
}
