/** The UUID that means "none" in a fixed-width field, which cannot be absent. */
export const nilUuid = '00000000-0000-0000-0000-000000000000';

/** Accepted run types; others are rejected. Source: the public run schema. */
export const runTypes = ['tool', 'chain', 'llm', 'retriever', 'embedding', 'prompt', 'parser'] as const;
export type RunType = (typeof runTypes)[number];

/** JSON text exactly as received, validated and never changed. */
export type JsonBytes = Uint8Array;

/** The values of a post or a patch. An absent value never overwrites the value of another event. */
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
  /** Costs are decimal text, as exact as received. */
  promptCost?: string;
  completionCost?: string;
  totalCost?: string;
  /** JSON object with any of prompt_token_details, completion_token_details, prompt_cost_details, completion_cost_details. */
  usageDetails?: JsonBytes;
  firstTokenTimeMicros?: number;
}

/**
 * One accepted post or patch of one run, with everything that decides where it is stored.
 * UUIDs are in lower case with dashes; times are microseconds since 1970, UTC.
 */
export interface RunEvent {
  readonly kind: 'post' | 'patch';
  readonly tenantId: string;
  readonly traceId: string;
  readonly runId: string;
  /** {@link nilUuid} if the event names no project: the sink assigns the project of the trace. */
  readonly projectId: string;
  /** From the last segment of dotted_order; part of the key. */
  readonly startTimeMicros: number;
  /**
   * From the first segment of dotted_order. Decides the billing hour unless an earlier event of the trace has another time.
   */
  readonly traceTimeMicros: number;
  readonly receivedAtMicros: number;
  readonly userId: string;
  readonly keyId: string;
  readonly dottedOrder?: string | undefined;
  readonly deletedAtMicros?: number | undefined;
  readonly values: RunValues;
}
