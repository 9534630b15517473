/** JSON text as sent: validated, never changed. */
type JsonBytes = Buffer;

/** The content of an evaluation: the part of a feedback that can be changed later. JSON text as sent. */
export interface FeedbackValues {
  /** A number or a boolean. */
  readonly score?: JsonBytes | undefined;
  readonly value?: JsonBytes | undefined;
  /** A JSON string, quotes included. */
  readonly comment?: JsonBytes | undefined;
  readonly correction?: JsonBytes | undefined;
}

/** A complete feedback, identified by workspace, run and id. Of several events with one identity, the last received wins. */
export interface FeedbackEvent extends FeedbackValues {
  readonly tenantId: string;
  /** The nil UUID for feedback on a project. */
  readonly runId: string;
  readonly id: string;
  readonly receivedAtMicros: number;
  readonly traceId?: string | undefined;
  readonly projectId?: string | undefined;
  /** Start time of the run, if the sender gave it. */
  readonly startTimeMicros?: number | undefined;
  /** Name of the metric, tag or aspect. */
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
