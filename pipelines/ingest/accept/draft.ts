import type { Config } from '../../../infra/config/settings.ts';
import type { ErrorCode } from '../../../infra/errors/catalogue.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { earliestKeyTimeMicros } from '../../../infra/event-log/avro.ts';
import type { RunValues } from '../run-event/run-event.ts';
import { formatTime, startRoundingMicros } from '../run-event/times.ts';

/** Workspace, user and key of the request. They are stored with each run. */
export interface Sender {
  readonly workspaceId: string;
  readonly userId: string;
  readonly keyId: string;
}

/** A post or patch that was validated individually. Its project has not been looked up yet. */
export interface RunDraft {
  readonly kind: 'post' | 'patch';
  readonly runId: string;
  readonly traceId: string;
  readonly startTimeMicros: number;
  readonly traceTimeMicros: number;
  readonly dottedOrder?: string | undefined;
  /** The `session_id` of the request. It takes precedence over the project name. */
  readonly projectId?: string | undefined;
  readonly projectName?: string | undefined;
  /** Original name of the project of the agent that `address` names. The project id and name take precedence over it. */
  readonly agentProject?: string | undefined;
  readonly values: RunValues;
}

/** A rejected run. The other runs of its request are not affected. */
export interface Rejection {
  /** Id of the run as stated in the request. If the run has no id, the name of its part or its position. */
  readonly run: string;
  /** An error of class `caller`. */
  readonly error: RunlakeError;
}

/** Result of an ingest request. */
export interface Acceptance {
  /** Number of accepted events of runs, attachments and feedback. */
  readonly accepted: number;
  readonly rejected: readonly Rejection[];
}

/** Maximum number of rejections that are listed in a response. */
export const maxListedRejections = 100;

/**
 * The rejected items of one request. Only the errors that a response lists are kept: a further rejection gets the error of
 * an earlier one with the same code, because a request may have very many invalid items.
 */
export class Rejections {
  readonly #errors = new Map<ErrorCode, RunlakeError>();
  readonly items: Rejection[] = [];

  add(run: string, error: RunlakeError): void {
    const shared = this.items.length < maxListedRejections ? undefined : this.#errors.get(error.code);
    if (shared === undefined) this.#errors.set(error.code, error);
    this.items.push({ run, error: shared ?? error });
  }

  /**
   * Adds the rejection of one item.
   *
   * @throws an error that fails the whole request: BODY_TOO_LARGE, and those of other classes than `caller`.
   */
  addCaught(run: string, error: unknown): void {
    if (!isRunlakeError(error) || error.class !== 'caller' || error.code === 'BODY_TOO_LARGE') throw error;
    this.add(run, error);
  }

  addInconsistentRun(run: string, reason: string): void {
    this.add(run, runlakeError('INVALID_RUN', { run, reason }));
  }
}

/** Returns the error of a request that contains a single run. It is the error of this run. */
export function toSingleRunError(rejected: readonly Rejection[]): RunlakeError {
  return (rejected[0] as Rejection).error;
}

/**
 * Returns the error of a request of which nothing was accepted. If all runs have the same error code other than
 * INVALID_RUN, this is the error of the first run (413, 422); otherwise it is ALL_RUNS_INVALID with status 400, which
 * lists the errors.
 */
export function createAllRejectedError(rejected: readonly Rejection[]): RunlakeError {
  const { error: first } = rejected[0] as Rejection;
  if (first.code !== 'INVALID_RUN' && rejected.every(({ error }) => error.code === first.code)) return first;
  const fields = rejected
    .slice(0, maxListedRejections)
    .map(({ run, error }) => ({ loc: ['body', run], msg: error.message, type: error.code }));
  // Companions have the same error as their run, so remove duplicates.
  const reasons = new Set(rejected.slice(0, maxListedRejections).map(({ error }) => error.message));
  return runlakeError('ALL_RUNS_INVALID', { reason: [...reasons].slice(0, 3).join(' ') }, { fields });
}

export function createRunTooLargeError(run: string, maxRunBytes: number): RunlakeError {
  return runlakeError('RUN_TOO_LARGE', { run, limitBytes: maxRunBytes, limit: 'RUNLAKE_MAX_RUN_BYTES' });
}

/**
 * Checks the size of a run or of one of its fields.
 *
 * @throws RUN_TOO_LARGE if the text exceeds the limit for a whole run.
 */
export function requireRunSize(run: string, bytes: number, maxRunBytes: number): void {
  if (bytes > maxRunBytes) throw createRunTooLargeError(run, maxRunBytes);
}

export type TimeLimits = Pick<Config, 'maxRunAgeDays'>;

/**
 * Maximum number of hours by which an accepted start time can lie in the future. Clients with wrong time zones are off
 * by at most this much.
 */
export const maxRunAheadHours = 24;

/**
 * How long before its start a run may end. The clock of a client may be set back while the run lasts, and a refused patch
 * would lose its outputs. The standard SDKs also write the end in milliseconds but the start in microseconds.
 */
const maxClockStepMicros = 3_600_000_000;

/** Latest time that the tables can store. Their range starts in 1970 and ends in 2260. */
export const latestStorableMicros = 9_180_000_000_000_000;

function isStorable(micros: number): boolean {
  return micros >= 0 && micros <= latestStorableMicros;
}

/** Removes a time of the first token that cannot be stored. It comes from an event, so it does not make a run invalid. */
export function dropUnusableFirstToken(values: RunValues): void {
  const { firstTokenTimeMicros: micros } = values;
  if (micros !== undefined && !isStorable(micros)) delete values.firstTokenTimeMicros;
}

/**
 * Returns the draft with the times under which it is stored, if the times in its dotted_order are not suitable. If the
 * key time and the start time differ, the start time becomes the key time. A time that is older than the age limit, or a
 * time of the trace too far in the future, is replaced, because it would determine the hour in which the trace is
 * counted: by the start time or, in a patch without a start time, by the time of acceptance. The sink corrects both times
 * if the run or its trace is already stored under other times.
 */
export function clampTimes(draft: RunDraft, nowMicros: number, limits: TimeLimits): RunDraft {
  const earliest = computeEarliestMicros(nowMicros, limits);
  const { startTimeMicros: key, traceTimeMicros: trace } = draft;
  const { startedAtMicros: stated = key >= earliest ? key : nowMicros } = draft.values;
  const isKeyNearStart = Math.abs(stated - key) <= startRoundingMicros;
  const isTraceInRange = trace >= earliest && trace <= computeLatestMicros(nowMicros);
  if (isKeyNearStart && isTraceInRange) return draft;
  const startTimeMicros = isKeyNearStart ? key : stated;
  return { ...draft, startTimeMicros, traceTimeMicros: isTraceInRange ? trace : startTimeMicros };
}

function computeLatestMicros(nowMicros: number): number {
  return nowMicros + maxRunAheadHours * 3_600_000_000;
}

function computeEarliestMicros(nowMicros: number, { maxRunAgeDays }: TimeLimits): number {
  return Math.max(nowMicros - maxRunAgeDays * 86_400_000_000, earliestKeyTimeMicros);
}

/** Returns a description of the first time that is out of range or out of order; undefined if all times are valid. */
export function findTimesError(draft: RunDraft, nowMicros: number, limits: TimeLimits): string | undefined {
  const earliest = computeEarliestMicros(nowMicros, limits);
  const latest = computeLatestMicros(nowMicros);
  const { startedAtMicros, endedAtMicros } = draft.values;
  // start_time decides the age of a run. Times in dotted_order may be older, because some clients write them by hand,
  // and a patch often has no other time; see `clampTimes`.
  const earliestKey = startedAtMicros !== undefined || draft.kind === 'patch' ? 0 : earliest;
  for (const [name, micros, from] of [
    // Check `start_time` first, so that the error states the range in which a corrected run must be.
    ['start_time', startedAtMicros, earliest],
    ['start time', draft.startTimeMicros, earliestKey],
    // Without dotted_order, the time of the trace comes from another run, which may be rejected.
    ['start time of the trace', draft.dottedOrder === undefined ? undefined : draft.traceTimeMicros, earliestKey],
  ] as const) {
    if (micros === undefined || (micros >= from && micros <= latest)) continue;
    const limit = from === earliest ? ' (RUNLAKE_MAX_RUN_AGE_DAYS)' : '';
    return (
      `the ${name} ${formatTime(micros)} is outside the accepted range, ${formatTime(from)}${limit} ` +
      `to ${formatTime(latest)}`
    );
  }
  if (endedAtMicros !== undefined && !isStorable(endedAtMicros))
    return 'the end_time is outside the years 1970 to 2260';
  const started = startedAtMicros ?? draft.startTimeMicros;
  if (endedAtMicros !== undefined && endedAtMicros + maxClockStepMicros < started) {
    return `end_time ${formatTime(endedAtMicros)} is more than an hour before start_time ${formatTime(started)}`;
  }
  return undefined;
}
