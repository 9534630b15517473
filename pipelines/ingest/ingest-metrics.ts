import { counter } from '../../infra/telemetry/metrics.ts';
import type { Rejection } from './accept/draft.ts';

const accepted = counter('runlake_runs_accepted_total', 'Posts and patches of runs that were made durable.', []);
const refused = counter('runlake_runs_rejected_total', 'Posts and patches of runs that were rejected, by error code.', [
  'code',
]);

/** Counts the accepted and rejected runs of a request. */
export function countRuns(taken: number, rejected: readonly Rejection[]): void {
  accepted.inc(taken);
  for (const { error } of rejected) refused.inc({ code: error.code });
}
