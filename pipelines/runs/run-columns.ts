/**
 * What can be read of a run, as SQL over `runs FINAL`. A patch's value wins over a post's, whichever came last.
 * Merged columns are read whole, never by subcolumn: those skip the merging.
 */
const merged = (name: string) => `coalesce(patch_${name}, post_${name})`;
const micros = (time: string) => `toUnixTimestamp64Micro(${time})`;
const metadataText = (key: string) => `nullIf(JSONExtractString(${merged('extra')}, 'metadata', '${key}'), '')`;

/** Characters of a preview, and one more to tell that there are more. */
export const previewCharacters = 250;
const preview = (name: string) => `substringUTF8(${merged(name)}, 1, ${previewCharacters + 1})`;

export const runColumns = {
  projectId: 'session_id',
  keyTimeMicros: micros('start_time'),
  traceId: 'trace_id',
  id: 'id',
  traceTimeMicros: micros('trace_time'),
  receivedAtMicros: micros('first_received_at'),
  dottedOrder: 'dotted_order',
  name: merged('name'),
  runType: merged('run_type'),
  startedAtMicros: micros(`coalesce(patch_started_at, post_started_at, start_time)`),
  endedAtMicros: micros(merged('ended_at')),
  /** Not null where the run failed. */
  failed: `if(isNotNull(${merged('error')}), '1', NULL)`,
  parentRunId: merged('parent_run_id'),
  referenceExampleId: merged('reference_example_id'),
  tags: merged('tags'),
  inputs: merged('inputs'),
  outputs: merged('outputs'),
  error: merged('error'),
  events: merged('events'),
  extra: merged('extra'),
  serialized: merged('serialized'),
  inputsPreview: preview('inputs'),
  outputsPreview: preview('outputs'),
  promptTokens: merged('prompt_tokens'),
  completionTokens: merged('completion_tokens'),
  totalTokens: merged('total_tokens'),
  promptCost: merged('prompt_cost'),
  completionCost: merged('completion_cost'),
  totalCost: merged('total_cost'),
  usageDetails: merged('usage_details'),
  firstTokenTimeMicros: micros(merged('first_token_time')),
  /** The conversation that a run belongs to; the first of three keys of its metadata that is not null or empty. */
  threadId: `coalesce(${['thread_id', 'session_id', 'conversation_id'].map(metadataText).join(', ')})`,
} as const satisfies Record<string, string>;

export type RunColumn = keyof typeof runColumns;
