import { Type } from 'typebox';
import { maxNameLength } from '../../../pipelines/projects/project-name.ts';
import type { ProjectRecord } from '../../../pipelines/projects/project-record.ts';
import { JsonObject, nullable, optional, Text, Timestamp, Uuid } from '../../server/formats.ts';

const TraceTier = Type.Union([Type.Literal('longlived'), Type.Literal('shortlived')]);
const Name = Text({ minLength: 1, maxLength: maxNameLength });
const Description = Text({ maxLength: 100_000 });

/** Stored as a 32-bit integer. */
const Count = (description: string) => Type.Integer({ minimum: 0, maximum: 2 ** 31 - 1, description });

export const SessionParams = Type.Object({ session_id: Uuid() });

/** Fields that can be set at creation and changed later. */
const changeable = {
  description: optional(Description),
  extra: optional(JsonObject({ description: 'Any JSON object; `metadata` in it is searchable.' })),
  end_time: optional(Timestamp()),
  default_dataset_id: optional(Uuid()),
  trace_tier: optional(TraceTier),
};

export const NewSession = Type.Object({
  id: optional(Uuid()),
  name: Name,
  start_time: optional(Timestamp()),
  reference_dataset_id: optional(Uuid()),
  num_examples: optional(Count('Number of examples of an experiment.')),
  num_repetitions: optional(Count('Number of repetitions of each example in an experiment.')),
  evaluator_keys: optional(Type.Array(Text({ maxLength: 1_000 }), { maxItems: 1_000 })),
  ...changeable,
});

export const SessionChange = Type.Object({ name: optional(Name), ...changeable });

const fields = {
  id: Uuid(),
  tenant_id: Uuid({ description: 'Id of the workspace.' }),
  name: Type.String(),
  description: nullable(Type.String()),
  extra: nullable(JsonObject()),
  start_time: Timestamp(),
  end_time: nullable(Timestamp()),
  default_dataset_id: nullable(Uuid()),
  reference_dataset_id: nullable(Uuid()),
  trace_tier: nullable(Type.String()),
  num_examples: nullable(Type.Integer()),
  num_repetitions: nullable(Type.Integer()),
  evaluator_keys: nullable(Type.Array(Type.String())),
  last_run_start_time_live: Type.Null(),
};

/** A project in responses to changes. */
export const Session = Type.Object(fields);

/** Statistics of runs that clients expect by name. They are not computed yet, so all are null. */
const statistics = [
  'run_count',
  'latency_p50',
  'latency_p99',
  'first_token_p50',
  'first_token_p99',
  'total_tokens',
  'prompt_tokens',
  'completion_tokens',
  'total_cost',
  'prompt_cost',
  'completion_cost',
  'last_run_start_time',
  'feedback_stats',
  'session_feedback_stats',
  'run_facets',
  'error_rate',
  'streaming_rate',
  'test_run_number',
] as const;

type Statistics = Record<(typeof statistics)[number], null>;

function forEachStatistic<T>(value: T): Record<(typeof statistics)[number], T> {
  return Object.fromEntries(statistics.map((name) => [name, value])) as Record<(typeof statistics)[number], T>;
}

const noStatistics: Statistics = forEachStatistic(null);

/** A project in responses to reads. */
export const SessionWithStatistics = Type.Object({
  ...fields,
  ...forEachStatistic(Type.Null({ description: 'Not computed yet; always null, also with include_stats.' })),
});

export function showSession(project: ProjectRecord) {
  return { ...project, last_run_start_time_live: null };
}

export function showSessionWithStatistics(project: ProjectRecord) {
  return { ...showSession(project), ...noStatistics };
}
