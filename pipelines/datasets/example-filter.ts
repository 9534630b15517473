import type { RawBuilder, SqlBool } from 'kysely';
import { checkFilter } from '../runs/filter/check-filter.ts';
import type { Field } from '../runs/filter/fields.ts';
import { parseFilter } from '../runs/filter/parse-filter.ts';
import { writeRowCondition } from '../runs/filter/row-conditions.ts';
import { addParameterName, type Condition } from '../runs/filter/syntax.ts';

/** Filters for examples. They use the filter language of run queries with other fields. */

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

const table = { fields: exampleFilterFields, columns: { modified_at: 'valid_from' }, metadataColumn: 'searchable' };

/**
 * Translates a condition on a row of `examples` to SQL. The value of the SQL expression is true or false, never null.
 */
export const writeExampleCondition = (condition: ExampleCondition): RawBuilder<SqlBool> =>
  writeRowCondition(condition, table);
