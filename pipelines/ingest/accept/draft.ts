import type { RunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { RunValues } from '../run-event/run-event.ts';

/** A post or patch that was read and found consistent in itself; its project is still a name, or unknown. */
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

/** A run that was not taken, and why. The others of its batch are. */
export interface Rejection {
  /** The run's id as the request gave it, or its part or place where it has none. */
  readonly run: string;
  /** The caller's fault. */
  readonly error: RunlakeError;
}

/** What became of a request. */
export interface Acceptance {
  /** Events of runs, attachments and feedback. */
  readonly accepted: number;
  readonly rejected: readonly Rejection[];
}
