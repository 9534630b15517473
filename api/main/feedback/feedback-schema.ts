import { Type } from 'typebox';
import { sourceTypes } from '../../../pipelines/feedback/feedback-values.ts';
import { JsonObject, optional, Timestamp, Uuid } from '../../server/formats.ts';

export const FeedbackParams = Type.Object({ feedback_id: Uuid() });

export const SourceType = Type.Union(sourceTypes.map((type) => Type.Literal(type)));

export const includeUserNames = Type.Boolean({
  default: false,
  description: 'Adds the name of the sender as `feedback_source.user_name`.',
});

/** A raw media type: responses contain the stored JSON unchanged and must not be re-serialised. */
export const feedbackMediaType = 'application/json; charset=utf-8';

/** Feedback in responses. */
export const Feedback = Type.Object({
  id: Uuid(),
  key: Type.String(),
  score: optional(Type.Union([Type.Number(), Type.Boolean()])),
  value: optional(Type.Union([Type.Number(), Type.Boolean(), Type.String(), JsonObject()])),
  comment: optional(Type.String()),
  correction: optional(Type.Union([JsonObject(), Type.String()])),
  run_id: optional(Uuid({ description: 'Null for feedback on a project.' })),
  trace_id: optional(Uuid()),
  session_id: optional(Uuid({ description: 'Id of the project. Default: the project of the run.' })),
  start_time: optional(Timestamp({ description: 'Start time of the run.' })),
  is_root: Type.Optional(Type.Boolean()),
  feedback_source: optional(
    Type.Object({
      type: SourceType,
      metadata: optional(JsonObject()),
      user_id: optional(Uuid()),
      ls_user_id: optional(Uuid()),
      user_name: optional(Type.String()),
    }),
  ),
  feedback_group_id: optional(Uuid()),
  comparative_experiment_id: optional(Uuid()),
  extra: optional(JsonObject()),
  error: optional(Type.Boolean({ description: 'True if the evaluator itself failed.' })),
  feedback_thread_id: Type.Optional(Type.Null()),
  created_at: Timestamp(),
  modified_at: Timestamp(),
});
