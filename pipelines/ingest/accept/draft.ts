import type { RunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { RunValues } from '../run-event/run-event.ts';

/** A post or patch that is valid in itself. Its project is still a name, or unknown. */
export interface RunDraft {
  readonly kind: 'post' | 'patch';
  readonly runId: string;
  readonly traceId: string;
  readonly startTimeMicros: number;
  readonly traceTimeMicros: number;
  readonly dottedOrder?: string | undefined;
  /** `session_id` of the request; wins over the name. */
  readonly projectId?: string | undefined;
  readonly projectName?: string | undefined;
  readonly values: RunValues;
}

/** A run that was rejected; the other runs of its request are not affected. */
export interface Rejection {
  /** Id of the run as in the request; without one, its part or position. */
  readonly run: string;
  /** An error of class `caller`. */
  readonly error: RunlakeError;
}

/** Result of an ingest request. */
export interface Acceptance {
  /** Number of events of runs, attachments and feedback. */
  readonly accepted: number;
  readonly rejected: readonly Rejection[];
}
