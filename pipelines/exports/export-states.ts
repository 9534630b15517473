/** States of a bulk export and of each export run. Source: SPEC 3.3. */
export const exportStatuses = ['CREATED', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED', 'TIMEDOUT'] as const;

export type ExportStatus = (typeof exportStatuses)[number];

/**
 * What has a state. A schedule is an export that spawns others: it is RUNNING from its creation and has no export runs
 * of its own.
 */
export type Moving = 'export' | 'schedule' | 'run';

export interface Move {
  readonly what: Moving;
  readonly from: ExportStatus;
  readonly to: ExportStatus;
  readonly when: string;
}

/** Every allowed transition. SQL statements that change a status take the allowed previous states from this table. */
export const moves: readonly Move[] = [
  {
    what: 'export',
    from: 'CREATED',
    to: 'RUNNING',
    when: 'earlier events are stored, and its workspace is below its limit',
  },
  { what: 'export', from: 'CREATED', to: 'CANCELLED', when: 'its owner cancels it, or its workspace was deleted' },
  { what: 'export', from: 'CREATED', to: 'FAILED', when: 'its project was deleted' },
  { what: 'export', from: 'RUNNING', to: 'COMPLETED', when: 'every run is COMPLETED and the manifest is written' },
  { what: 'export', from: 'RUNNING', to: 'FAILED', when: 'a run is FAILED, or the manifest can never be written' },
  { what: 'export', from: 'RUNNING', to: 'CANCELLED', when: 'its owner cancels it, or its workspace was deleted' },
  { what: 'export', from: 'RUNNING', to: 'TIMEDOUT', when: 'it exceeds the timeout of an export' },
  { what: 'schedule', from: 'RUNNING', to: 'CANCELLED', when: 'its owner cancels it, or its workspace was deleted' },
  { what: 'schedule', from: 'RUNNING', to: 'FAILED', when: 'its project was deleted' },
  { what: 'run', from: 'CREATED', to: 'RUNNING', when: 'a worker claims it' },
  { what: 'run', from: 'CREATED', to: 'CANCELLED', when: 'its export is cancelled or failed' },
  { what: 'run', from: 'CREATED', to: 'TIMEDOUT', when: 'its export is out of time' },
  { what: 'run', from: 'RUNNING', to: 'COMPLETED', when: 'its last file is recorded' },
  { what: 'run', from: 'RUNNING', to: 'FAILED', when: 'its retries are used up, or its error is not retryable' },
  { what: 'run', from: 'RUNNING', to: 'CANCELLED', when: 'its export is cancelled or failed' },
  { what: 'run', from: 'RUNNING', to: 'TIMEDOUT', when: 'its export is out of time' },
];

/** The states from which `what` may change to `to`; empty if no transition leads there. */
export function statesBefore(what: Moving, to: ExportStatus): ExportStatus[] {
  return moves.filter((move) => move.what === what && move.to === to).map((move) => move.from);
}

/** Whether the state is final. */
export function isFinished(status: ExportStatus): boolean {
  return status !== 'CREATED' && status !== 'RUNNING';
}
