import type { ErrorCode } from '../../../infra/errors/catalogue.ts';
import type { FeedbackPorts } from '../../../pipelines/feedback/ports.ts';
import type { Services } from '../../server/services.ts';

/** What the feedback operations need of the services. */
export function feedbackPorts(services: Services): FeedbackPorts {
  const { accept, warehouse, database, config, recentFeedback: recent } = services;
  // The in-process log answers once the store has the event.
  const waitMs = config.kafkaBrokers === undefined ? 0 : config.patchWaitMs;
  return { log: accept.log, warehouse, database, config, recent, waitMs };
}

/** What is wrong with a feedback, or keeps it from being taken now. */
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
