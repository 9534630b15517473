/** The UUID that stands for "none" where a field of constant width cannot be absent. */
export const nilUuid = '00000000-0000-0000-0000-000000000000';

/** Run types that may come in; anything else is the caller's fault. Source: the public run schema. */
export const runTypes = ['tool', 'chain', 'llm', 'retriever', 'embedding', 'prompt', 'parser'] as const;
export type RunType = (typeof runTypes)[number];

/** JSON text as it came, validated and never changed. */
export type JsonBytes = Uint8Array;

/** What a post or a patch says of a run. Absent means: says nothing, which never undoes what another event said. */
export interface RunValues {
  name?: string;
  runType?: RunType;
  startedAtMicros?: number;
  endedAtMicros?: number;
  parentRunId?: string;
  referenceExampleId?: string;
  tags?: JsonBytes;
  inputs?: JsonBytes;
  outputs?: JsonBytes;
  /** A JSON string, quotes included. */
  error?: JsonBytes;
  events?: JsonBytes;
  extra?: JsonBytes;
  serialized?: JsonBytes;
  promptTokens?: number;
  completionTokens?: number;
  totalTokens?: number;
  /** Costs are decimals in text, as exact as they came. */
  promptCost?: string;
  completionCost?: string;
  totalCost?: string;
  /** JSON object with any of prompt_token_details, completion_token_details, prompt_cost_details, completion_cost_details. */
  usageDetails?: JsonBytes;
  firstTokenTimeMicros?: number;
}

/**
 * One accepted post or patch of one run, with everything that decides where it is stored.
 * UUIDs are lower case with dashes; times are microseconds since 1970, UTC.
 */
export interface RunEvent {
  readonly kind: 'post' | 'patch';
  readonly tenantId: string;
  readonly traceId: string;
  readonly runId: string;
  /** {@link nilUuid} where the event names no project: the sink takes the trace's. */
  readonly projectId: string;
  /** From the last segment of dotted_order; part of the key. */
  readonly startTimeMicros: number;
  /** From the first segment of dotted_order; decides the billing hour, unless an earlier event of the trace said otherwise. */
  readonly traceTimeMicros: number;
  readonly receivedAtMicros: number;
  readonly userId: string;
  readonly keyId: string;
  readonly dottedOrder?: string | undefined;
  readonly deletedAtMicros?: number | undefined;
  readonly values: RunValues;
}
