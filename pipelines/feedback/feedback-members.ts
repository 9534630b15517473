import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { MemberReader } from '../ingest/accept/read-members.ts';
import type { JsonValue } from '../ingest/accept/run-members.ts';
import { KeySet } from '../ingest/json/key-set.ts';
import { type ScanOptions, scanObject } from '../ingest/json/scan.ts';

/** Members for features that this server does not have. JavaScript clients send the first one in camel case. */
const notSupported = ['feedback_config', 'feedbackConfig', 'address'] as const;

/** Members of a feedback that this server reads; all others are accepted and ignored. Source: the public feedback schema. */
const feedbackKeys = [
  'id',
  'run_id',
  'trace_id',
  'session_id',
  'start_time',
  'key',
  'score',
  'value',
  'comment',
  'correction',
  'feedback_source',
  'feedback_group_id',
  'comparative_experiment_id',
  'extra',
  'error',
  'created_at',
  'modified_at',
  ...notSupported,
] as const;
export type FeedbackKey = (typeof feedbackKeys)[number];

export type FeedbackMembers = { [K in FeedbackKey]?: JsonValue };

const known = new KeySet(feedbackKeys);

/**
 * Parses the members of a feedback; of repeated members the last one wins.
 *
 * @throws INVALID_JSON, INVALID_UTF8, TOO_DEEP, PARAMETER_NOT_SUPPORTED.
 */
export function feedbackMembers(bytes: Buffer, options: ScanOptions): FeedbackMembers {
  const members: FeedbackMembers = {};
  for (const [index, range] of scanObject(bytes, 0, bytes.length, known, options).entries()) {
    const key = known.keys[index] as FeedbackKey;
    if (range !== undefined) members[key] = { kind: range.kind, bytes: bytes.subarray(range.start, range.end) };
  }
  for (const key of notSupported) {
    const member = members[key];
    if (member !== undefined && member.kind !== 'null')
      throw runlakeError('PARAMETER_NOT_SUPPORTED', { parameter: key });
  }
  return members;
}

/** A reader of the members, whose errors are INVALID_FEEDBACK. */
export function feedbackReader(feedback: string, members: FeedbackMembers): MemberReader<FeedbackKey> {
  return new MemberReader(feedback, members, (name, reason) =>
    runlakeError('INVALID_FEEDBACK', { feedback: name, reason }),
  );
}

/** The id as sent, which names the feedback in an error; truncated, because it may be any string. */
export function nameOf({ id }: FeedbackMembers): string | undefined {
  return id?.kind === 'string' ? id.bytes.toString('utf8', 1, Math.min(id.bytes.length - 1, 65)) : undefined;
}
