import type { RunColumn } from './run-columns.ts';
import { type RelatedKind, type RunFieldName, runFields } from './run-fields.ts';

/** Aliases of fields in `select`. Runlake stores all values in the run itself and never returns a URL instead. */
const fieldAliases = {
  inputs_or_signed_url: ['inputs'],
  outputs_or_signed_url: ['outputs'],
  error_or_signed_url: ['error'],
  events_or_signed_url: ['events'],
  extra_or_signed_url: ['extra'],
  serialized_or_signed_url: ['serialized'],
  manifest: ['serialized'],
  trace_min_max_start_time: ['trace_min_start_time', 'trace_max_start_time'],
} as const satisfies Record<string, readonly RunFieldName[]>;

/** Token counts and costs are returned with their details. */
const detailFields = {
  prompt_tokens: ['prompt_token_details'],
  completion_tokens: ['completion_token_details'],
  total_tokens: ['prompt_token_details', 'completion_token_details'],
  prompt_cost: ['prompt_cost_details'],
  completion_cost: ['completion_cost_details'],
  total_cost: ['prompt_cost_details', 'completion_cost_details'],
} as const satisfies Partial<Record<RunFieldName, readonly RunFieldName[]>>;

/** Names that `select` accepts. */
export type SelectName = RunFieldName | keyof typeof fieldAliases;
export const selectNames = [...Object.keys(runFields), ...Object.keys(fieldAliases)] as readonly SelectName[];

const allFields = Object.keys(runFields) as readonly RunFieldName[];

/**
 * Fields of every response: those required by the public schema, and the start time, without which the Python SDK
 * cannot build a run.
 */
const alwaysFields: ReadonlySet<RunFieldName> = new Set([
  'id',
  'name',
  'run_type',
  'start_time',
  'trace_id',
  'dotted_order',
  'status',
  'session_id',
  'app_path',
]);

/**
 * Fields that are left out if the request selects nothing, because they need additional queries or repeat other fields.
 */
const omittedByDefault: ReadonlySet<RunFieldName> = new Set([
  'inputs_preview',
  'outputs_preview',
  'child_run_ids',
  'direct_child_run_ids',
  'trace_min_start_time',
  'trace_max_start_time',
  'inserted_at',
  'messages',
]);

/** The fields of a response, and the data that has to be read for them. */
export interface Selection {
  readonly fields: readonly RunFieldName[];
  readonly columns: ReadonlySet<RunColumn>;
  readonly relatedKinds: ReadonlySet<RelatedKind>;
}

/** Returns the selection for the given names. An empty list means the same as undefined. */
export function selectFields(names: readonly SelectName[] | undefined): Selection {
  if (names === undefined || names.length === 0) return createSelection((field) => !omittedByDefault.has(field));
  const wanted = new Set<string>(
    names.flatMap((name): readonly string[] => {
      if (isOtherName(name)) return fieldAliases[name];
      return [name, ...(hasDetails(name) ? detailFields[name] : [])];
    }),
  );
  return createSelection((field) => wanted.has(field));
}

/** All fields except those in `without`. */
export function selectAll(without: readonly RunFieldName[] = []): Selection {
  return createSelection((field) => !without.includes(field));
}

function createSelection(wanted: (field: RunFieldName) => boolean): Selection {
  const fields = allFields.filter((field) => alwaysFields.has(field) || wanted(field));
  return {
    fields,
    columns: new Set(fields.flatMap((field) => runFields[field].columns as readonly RunColumn[])),
    relatedKinds: new Set(fields.flatMap((field) => runFields[field].relatedKind ?? [])),
  };
}

function hasDetails(name: SelectName): name is keyof typeof detailFields {
  return Object.hasOwn(detailFields, name);
}

function isOtherName(name: SelectName): name is keyof typeof fieldAliases {
  return Object.hasOwn(fieldAliases, name);
}
