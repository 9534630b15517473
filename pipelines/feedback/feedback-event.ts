/** JSON text as it came, validated and never changed. */
type JsonBytes = Buffer;

/** What an evaluation says; the part of a feedback that can be changed later. JSON text as it came. */
export interface FeedbackValues {
  /** A number or a boolean. */
  readonly score?: JsonBytes | undefined;
  readonly value?: JsonBytes | undefined;
  /** A JSON string, quotes included. */
  readonly comment?: JsonBytes | undefined;
  readonly correction?: JsonBytes | undefined;
}

/**
 * One feedback, whole. Workspace, run and id are its identity: of several events the one that was received last counts.
 */
export interface FeedbackEvent extends FeedbackValues {
  readonly tenantId: string;
  /** The nil UUID for feedback on a project. */
  readonly runId: string;
  readonly id: string;
  readonly receivedAtMicros: number;
  readonly traceId?: string | undefined;
  readonly projectId?: string | undefined;
  /** Of the run, where the sender said it. */
  readonly startTimeMicros?: number | undefined;
  /** The metric, tag or aspect. */
  readonly key: string;
  /** `type` of `source`; empty in a deletion. */
  readonly sourceType: string;
  readonly source?: JsonBytes | undefined;
  readonly groupId?: string | undefined;
  readonly comparativeExperimentId?: string | undefined;
  readonly extra?: JsonBytes | undefined;
  /** Whether the evaluator itself failed. */
  readonly error?: boolean | undefined;
  readonly userId: string;
  readonly createdAtMicros: number;
  readonly modifiedAtMicros: number;
  readonly deletedAtMicros?: number | undefined;
}
