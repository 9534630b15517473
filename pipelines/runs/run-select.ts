import { type RunField, type RunFieldName, runFields } from './run-fields.ts';
import { publicV2Fields, threadTraceFields, traceAggregateFields, v2Fields } from './v2-fields.ts';
import { JsonChunks, type Selection, writeRun } from './write-runs.ts';

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

/** Token counts and costs, each with the details that are returned with it. */
const detailFields = {
  prompt_tokens: ['prompt_token_details'],
  completion_tokens: ['completion_token_details'],
  total_tokens: ['prompt_token_details', 'completion_token_details'],
  prompt_cost: ['prompt_cost_details'],
  completion_cost: ['completion_cost_details'],
  total_cost: ['prompt_cost_details', 'completion_cost_details'],
} as const satisfies Partial<Record<RunFieldName, readonly RunFieldName[]>>;

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
 * Fields that are omitted if the request selects nothing, because they need additional queries or repeat other fields.
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

/** Returns the selection for the given names. An empty list means the same as undefined. */
export function selectFields(names: readonly SelectName[] | undefined): Selection {
  if (names === undefined || names.length === 0) return createSelection((field) => !omittedByDefault.has(field));
  const selected = new Set<string>(
    names.flatMap((name): readonly string[] => {
      if (isFieldAlias(name)) return fieldAliases[name];
      return [name, ...(hasDetails(name) ? detailFields[name] : [])];
    }),
  );
  return createSelection((field) => selected.has(field));
}

/** Selects what a request that selects nothing gets, and the previews of inputs and outputs. */
export function selectWithPreviews(): Selection {
  return createSelection((field) => !omittedByDefault.has(field) || field.endsWith('puts_preview'));
}

export function selectAll(excludedFields: readonly RunFieldName[] = []): Selection {
  return createSelection((field) => !excludedFields.includes(field));
}

function createSelection(isSelected: (field: RunFieldName) => boolean): Selection {
  return createFormSelection(
    runFields,
    allFields.filter((field) => alwaysFields.has(field) || isSelected(field)),
  );
}

/**
 * Fields of a run in a shared trace. Source: the public schema of shared runs. Links to attachments are omitted,
 * because they stay valid after the sharing has ended.
 */
export const publicFields = [
  'id',
  'name',
  'run_type',
  'start_time',
  'end_time',
  'status',
  'error',
  'extra',
  'events',
  'inputs',
  'inputs_preview',
  'outputs',
  'outputs_preview',
  'serialized',
  'tags',
  'trace_id',
  'dotted_order',
  'parent_run_id',
  'parent_run_ids',
  'child_run_ids',
  'direct_child_run_ids',
  'execution_order',
  'reference_example_id',
  'total_tokens',
  'prompt_tokens',
  'completion_tokens',
  'prompt_token_details',
  'completion_token_details',
  'total_cost',
  'prompt_cost',
  'completion_cost',
  'prompt_cost_details',
  'completion_cost_details',
  'first_token_time',
  'feedback_stats',
] as const satisfies readonly RunFieldName[];

/**
 * Selects the fields that are public.
 *
 * @param more Further fields that the token gives access to, in addition to the public ones.
 */
export function selectPublicFields(more: readonly RunFieldName[] = []): Selection {
  return createFormSelection(runFields, [...publicFields, ...more]);
}

/** Selects fields of version 2 by their names in upper case. Without names, selects only the id. */
export function selectV2Fields(names: readonly string[] | undefined): Selection {
  return selectUpperCaseNames(v2Fields, names, ['ID']);
}

/** Like {@link selectV2Fields}, but for shared traces; names of private fields are ignored. */
export function selectPublicV2Fields(names: readonly string[] | undefined): Selection {
  const isPublic = (name: string) => Object.hasOwn(publicV2Fields, name.toLowerCase());
  return selectUpperCaseNames(publicV2Fields, names?.filter(isPublic), ['ID']);
}

/** Like {@link selectV2Fields}, but for the traces of a thread; the id of the trace is always selected. */
export function selectThreadTraceFields(names: readonly string[] = []): Selection {
  return selectUpperCaseNames(threadTraceFields, ['TRACE_ID', ...names], []);
}

/**
 * Like {@link selectV2Fields}, but for traces: selects `root_run` with its fields, and `trace_aggregates` if one of its
 * fields is selected.
 */
export function selectTraceFields(names: readonly string[] | undefined): Selection {
  const aggregates = selectUpperCaseNames(traceAggregateFields, names, []);
  const rootFieldNames = (names ?? []).filter((name) => !aggregates.fields.includes(name.toLowerCase()));
  const root = selectUpperCaseNames(v2Fields, rootFieldNames, ['ID']);
  const parts = { root_run: root, ...(aggregates.fields.length > 0 && { trace_aggregates: aggregates }) };
  return {
    form: Object.fromEntries(Object.entries(parts).map(([name, selection]) => [name, nestSelection(selection)])),
    fields: Object.keys(parts),
    columns: new Set([...root.columns, ...aggregates.columns]),
    relatedKinds: new Set([...root.relatedKinds, ...aggregates.relatedKinds]),
  };
}

/** Creates a field that is an object with the selected fields. */
function nestSelection(selection: Selection): RunField {
  return {
    columns: [...selection.columns],
    json(run, related) {
      const json = new JsonChunks();
      writeRun(json, run, selection, related);
      return json.toBuffer();
    },
  };
}

function selectUpperCaseNames<Name extends string>(
  form: Readonly<Record<Name, RunField>>,
  names: readonly string[] | undefined,
  defaultNames: readonly string[],
): Selection {
  const selected = new Set(names === undefined || names.length === 0 ? defaultNames : names);
  return createFormSelection(
    form,
    (Object.keys(form) as Name[]).filter((field) => selected.has(field.toUpperCase())),
  );
}

function createFormSelection<Name extends string>(
  form: Readonly<Record<Name, RunField>>,
  fields: readonly Name[],
): Selection {
  return {
    form,
    fields,
    columns: new Set(fields.flatMap((field) => form[field].columns)),
    relatedKinds: new Set(fields.flatMap((field) => form[field].relatedKind ?? [])),
  };
}

function hasDetails(name: SelectName): name is keyof typeof detailFields {
  return Object.hasOwn(detailFields, name);
}

function isFieldAlias(name: SelectName): name is keyof typeof fieldAliases {
  return Object.hasOwn(fieldAliases, name);
}
