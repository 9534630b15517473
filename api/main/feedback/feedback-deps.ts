import type { ErrorCode } from '../../../infra/errors/catalogue.ts';
import type { FeedbackDeps } from '../../../pipelines/feedback/feedback-event.ts';
import type { Services } from '../../server/services.ts';

/** Returns the dependencies of the feedback operations. */
export function feedbackDeps(services: Services): FeedbackDeps {
  const { accept, clickhouse, database, config, recentFeedback: recent } = services;
  // The in-process log acknowledges an event after ClickHouse has stored it, so there is nothing to wait for.
  const waitMs = config.kafkaBrokers === undefined ? 0 : config.patchWaitMs;
  return { log: accept.log, clickhouse, database, config, recent, waitMs };
}

/** Errors of accepting feedback. */
export const feedbackBodyErrors = [
  'INVALID_FEEDBACK',
  'INVALID_JSON',
  'INVALID_UTF8',
  'TOO_DEEP',
  'RUN_TOO_LARGE',
  'BODY_TOO_LARGE',
  'PARAMETER_NOT_SUPPORTED',
  'UNSUPPORTED_MEDIA_TYPE',
  'OVERLOADED',
  'EVENT_LOG_UNAVAILABLE',
] as const satisfies readonly ErrorCode[];
