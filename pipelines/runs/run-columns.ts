/**
 * The readable columns of a run, as SQL over `runs FINAL`. The value of a patch wins over that of a post, whichever was
 * received last. Merged columns are read whole: a subcolumn would skip the merging.
 */
const merged = (name: string) => `coalesce(patch_${name}, post_${name})`;
const micros = (time: string) => `toUnixTimestamp64Micro(${time})`;
/** A patch may omit the run type, so the type is checked here: usage counts only for model calls. */
const ofModelCall = (name: string) => `if(${merged('run_type')} IN ('llm', 'embedding'), ${merged(name)}, NULL)`;
const metadataText = (key: string) => `nullIf(JSONExtractString(${merged('extra')}, 'metadata', '${key}'), '')`;

/** Maximum characters of a preview. One more is read to detect truncation. */
export const previewCharacters = 250;
const preview = (name: string) => `substringUTF8(${merged(name)}, 1, ${previewCharacters + 1})`;

/** Bytes sent for a run, in post and patch. */
export const runBytes = 'coalesce(post_bytes, 0) + coalesce(patch_bytes, 0)';

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
  /** Not null if the run failed. */
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
  promptTokens: ofModelCall('prompt_tokens'),
  completionTokens: ofModelCall('completion_tokens'),
  totalTokens: ofModelCall('total_tokens'),
  promptCost: ofModelCall('prompt_cost'),
  completionCost: ofModelCall('completion_cost'),
  totalCost: ofModelCall('total_cost'),
  usageDetails: ofModelCall('usage_details'),
  firstTokenTimeMicros: micros(ofModelCall('first_token_time')),
  /** Conversation of the run: the first of three metadata keys that is not null or empty. */
  threadId: `coalesce(${['thread_id', 'session_id', 'conversation_id'].map(metadataText).join(', ')})`,
} as const satisfies Record<string, string>;

export type RunColumn = keyof typeof runColumns;
