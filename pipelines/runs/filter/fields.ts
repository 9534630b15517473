import { runTypes } from '../../ingest/run-event/run-event.ts';
import type { Operator } from './syntax.ts';

/** Types of fields; each type accepts certain operators and certain values. */
export type FieldType =
  | 'uuid'
  | 'text'
  | 'choice'
  | 'number'
  | 'duration'
  | 'time'
  | 'boolean'
  | 'tags'
  | 'object'
  | 'document'
  | 'pair-value';

export interface Field {
  readonly type: FieldType;
  /** Whether the value may be absent, so that a comparison with `null` makes sense. */
  readonly isNullable?: boolean;
  /** Whether the field supports `search(field, "…")`. */
  readonly isSearchable?: boolean;
  /** Allowed values of a field of the type `choice`. */
  readonly choices?: readonly string[];
  /** Conditions in one `and` on fields of the same family apply to the same pair. */
  readonly family?: PairFamily;
  /** Whether the field is the key of a pair. */
  readonly isKey?: boolean;
}

export const pairFamilies = ['metadata', 'input', 'output', 'feedback'] as const;
/** A kind of key–value pairs: those of a JSON document of the run, or its feedback. */
export type PairFamily = (typeof pairFamilies)[number];

export const operatorsByType: Readonly<Record<FieldType, readonly Operator[]>> = {
  uuid: ['eq', 'neq', 'in'],
  text: ['eq', 'neq', 'in', 'like'],
  choice: ['eq', 'neq', 'in'],
  number: ['eq', 'neq', 'gt', 'gte', 'lt', 'lte', 'in'],
  duration: ['eq', 'neq', 'gt', 'gte', 'lt', 'lte', 'in'],
  time: ['eq', 'neq', 'gt', 'gte', 'lt', 'lte', 'in'],
  boolean: ['eq', 'neq'],
  tags: ['has', 'eq', 'neq', 'in', 'like'],
  object: ['has', 'exists'],
  document: [],
  'pair-value': ['eq', 'neq', 'gt', 'gte', 'lt', 'lte', 'in', 'like'],
};

const key = (family: PairFamily) => ({ type: 'text', family, isKey: true }) as const;
const value = (family: PairFamily) => ({ type: 'pair-value', family }) as const;

export const runFilterFields = {
  id: { type: 'uuid' },
  name: { type: 'text', isSearchable: true },
  run_type: { type: 'choice', choices: runTypes },
  status: { type: 'choice', choices: ['success', 'error', 'pending'] },
  start_time: { type: 'time' },
  end_time: { type: 'time', isNullable: true },
  first_token_time: { type: 'time', isNullable: true },
  latency: { type: 'duration', isNullable: true },
  error: { type: 'text', isNullable: true, isSearchable: true },
  is_root: { type: 'boolean' },
  execution_order: { type: 'number' },
  tags: { type: 'tags' },
  total_tokens: { type: 'number' },
  prompt_tokens: { type: 'number' },
  completion_tokens: { type: 'number' },
  total_cost: { type: 'number', isNullable: true },
  prompt_cost: { type: 'number', isNullable: true },
  completion_cost: { type: 'number', isNullable: true },
  trace_id: { type: 'uuid' },
  parent_run_id: { type: 'uuid', isNullable: true },
  reference_example_id: { type: 'uuid', isNullable: true },
  session_id: { type: 'uuid' },
  thread_id: { type: 'text', isNullable: true },
  metadata: { type: 'object' },
  inputs: { type: 'document', isSearchable: true },
  outputs: { type: 'document', isSearchable: true },
  metadata_key: key('metadata'),
  metadata_value: value('metadata'),
  input_key: key('input'),
  input_value: value('input'),
  output_key: key('output'),
  output_value: value('output'),
  feedback_key: key('feedback'),
  feedback_score: { type: 'number', family: 'feedback' },
  feedback_value: value('feedback'),
  feedback_source: { type: 'text', family: 'feedback' },
} as const satisfies Record<string, Field>;

export type RunFilterField = keyof typeof runFilterFields;
/** Fields whose values are compared directly; all other fields are compared within their pairs, or searched. */
export type PlainField = {
  [Name in RunFilterField]: (typeof runFilterFields)[Name] extends
    | { readonly family: PairFamily }
    | { readonly type: 'object' | 'document' }
    ? never
    : Name;
}[RunFilterField];

export function getField(name: RunFilterField): Field {
  return runFilterFields[name];
}
