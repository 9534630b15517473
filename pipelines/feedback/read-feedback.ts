import type { Config } from '../../infra/config/settings.ts';
import { latestStorableMicros, type Sender } from '../ingest/accept/draft.ts';
import type { MemberReader } from '../ingest/accept/read-run.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { readAgentProject } from '../projects/agent-address.ts';
import type { FeedbackConfig } from './feedback-config.ts';
import type { FeedbackEvent } from './feedback-event.ts';
import {
  createFeedbackReader,
  type FeedbackKey,
  getFeedbackName,
  parseFeedbackMembers,
  readFeedbackValues,
  readSource,
} from './feedback-values.ts';
import { readSentConfig } from './sent-config.ts';

/** Maximum length of a feedback key, in characters. Source: the public feedback schema. */
const maxKeyCharacters = 180;

/** Workspace and user for whom the feedback is stored. */
export type FeedbackSender = Pick<Sender, 'workspaceId' | 'userId'>;

/** A feedback entry, with what is not stored in it. The config is that of its key, if the client sent one. */
export interface ParsedFeedback extends FeedbackEvent {
  readonly config?: FeedbackConfig | undefined;
  /** Original name of the project of the agent that `address` names, if the feedback names no project id. */
  readonly agentProject?: string | undefined;
}

export interface FeedbackText {
  readonly bytes: Buffer;
  /** Name of the text in errors: the name of the part, or `the body`. */
  readonly part: string;
}

/**
 * Parses a feedback entry from JSON (a body, or a `feedback.…` part of a multipart body) and sets `received_at` to the
 * current time. The bytes of score, value, comment, correction, extra and source stay unchanged. The run is taken from
 * the JSON, because clients name parts in different ways.
 *
 * @param generateId Generates an id if the feedback entry has none. If `generateId` is absent, a missing id is an error,
 *   because a repeated request would create a second entry.
 * @throws INVALID_FEEDBACK, INVALID_JSON, INVALID_UTF8, TOO_DEEP.
 */
export function readFeedback(
  sender: FeedbackSender,
  { bytes, part }: FeedbackText,
  { maxJsonDepth }: Pick<Config, 'maxJsonDepth'>,
  generateId?: () => string,
): ParsedFeedback {
  const members = parseFeedbackMembers(bytes, { part, maxDepth: maxJsonDepth });
  const reader = createFeedbackReader(getFeedbackName(members) ?? `of ${part}`, members, part);
  const nowMicros = Date.now() * 1_000;
  const id = reader.uuid('id') ?? generateId?.();
  if (id === undefined) throw reader.createError('id', 'is missing: a repeated request would create a second feedback');
  const traceId = reader.uuid('trace_id');
  const projectId = reader.uuid('session_id');
  // Feedback on a trace refers to its root run, which `prepare-feedback.ts` finds if it has another id.
  const runId = reader.uuid('run_id') ?? traceId;
  const agentProject = readAgentProject(reader);
  if (runId === undefined && projectId === undefined && agentProject === undefined)
    throw reader.createError('run_id', 'or session_id is required');
  return {
    tenantId: sender.workspaceId,
    runId: runId ?? nilUuid,
    id,
    receivedAtMicros: nowMicros,
    traceId,
    projectId,
    startTimeMicros: readTime(reader, 'start_time'),
    key: readKey(reader),
    ...readFeedbackValues(reader),
    ...readSource(reader),
    groupId: reader.uuid('feedback_group_id'),
    comparativeExperimentId: reader.uuid('comparative_experiment_id'),
    extra: reader.json('extra', 'object'),
    error: readFlag(reader, 'error'),
    userId: sender.userId,
    createdAtMicros: readTime(reader, 'created_at') ?? nowMicros,
    modifiedAtMicros: readTime(reader, 'modified_at') ?? nowMicros,
    keepsTrace: readFlag(reader, 'extend_trace_retention'),
    config: readSentConfig(reader),
    ...(projectId === undefined && { agentProject }),
  };
}

type Reader = MemberReader<FeedbackKey>;

function readKey(reader: Reader): string {
  const key = reader.text('key');
  if (key === undefined) throw reader.createError('key', 'is missing');
  if (key === '') throw reader.createError('key', 'is empty');
  if ([...key].length > maxKeyCharacters)
    throw reader.createError('key', `is longer than ${maxKeyCharacters} characters`);
  if (/[\0\p{Surrogate}]/u.test(key)) throw reader.createError('key', 'contains NUL characters or lone surrogates');
  return key;
}

function readTime(reader: Reader, key: 'start_time' | 'created_at' | 'modified_at'): number | undefined {
  const micros = reader.time(key);
  if (micros !== undefined && (micros < 0 || micros > latestStorableMicros)) {
    throw reader.createError(key, 'is outside the years 1970 to 2260');
  }
  return micros;
}

function readFlag(reader: Reader, key: 'error' | 'extend_trace_retention'): boolean | undefined {
  const flag = reader.json(key, 'true', 'false');
  return flag === undefined ? undefined : flag[0] === 0x74;
}
