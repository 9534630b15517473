import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { type JsonValue, MemberReader } from '../ingest/accept/read-run.ts';
import { findPath } from '../ingest/json/find.ts';
import { readWithNonFinite } from '../ingest/json/non-finite.ts';
import { scanObject } from '../ingest/json/scan.ts';
import { KeySet } from '../ingest/json/scan-any.ts';
import type { ScanOptions } from '../ingest/json/scan-input.ts';
import { decodeStringBytes } from '../ingest/json/scan-string.ts';
import type { FeedbackEvent, FeedbackValues } from './feedback-event.ts';

/**
 * Members of a feedback entry that this server reads. All other members are accepted and ignored. Source: the public
 * feedback schema.
 */
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
  'extend_trace_retention',
  'feedback_config',
  'feedbackConfig',
  'address',
] as const;
export type FeedbackKey = (typeof feedbackKeys)[number];

type FeedbackMembers = { [K in FeedbackKey]?: JsonValue };

const knownKeys = new KeySet(feedbackKeys);

/**
 * Parses the members of a feedback entry. If a member is repeated, the last occurrence wins.
 *
 * @throws INVALID_JSON, INVALID_UTF8, TOO_DEEP.
 */
export function parseFeedbackMembers(bytes: Buffer, options: ScanOptions): FeedbackMembers {
  return readWithNonFinite(bytes, (text) => {
    const members: FeedbackMembers = {};
    for (const [index, range] of scanObject(text, 0, text.length, knownKeys, options).entries()) {
      const key = knownKeys.keys[index] as FeedbackKey;
      if (range !== undefined) members[key] = { kind: range.kind, bytes: text.subarray(range.start, range.end) };
    }
    return members;
  });
}

/** Name of a feedback entry in errors if it is the whole body of a request. */
export const wholeBody = 'the body';

/** Creates a reader for the members of a feedback entry. Its errors are INVALID_FEEDBACK, with the path of the member. */
export function createFeedbackReader(
  feedback: string,
  members: FeedbackMembers,
  part = wholeBody,
): MemberReader<FeedbackKey> {
  return new MemberReader(feedback, members, (name, reason, key) => {
    const loc = ['body', ...(part === wholeBody ? [] : [part]), key];
    const fields = [{ loc, msg: reason, type: 'invalid_feedback' }];
    return runlakeError('INVALID_FEEDBACK', { feedback: name, reason }, { fields });
  });
}

/**
 * Returns the id as sent by the client, to identify the feedback in an error. The id is truncated, because it may be
 * any string.
 */
export function getFeedbackName({ id }: FeedbackMembers): string | undefined {
  return id?.kind === 'string' ? id.bytes.toString('utf8', 1, Math.min(id.bytes.length - 1, 65)) : undefined;
}

type Reader = MemberReader<FeedbackKey>;

/** Maximum number of characters of a score. Longer scores are rejected. */
const maxScoreCharacters = 400;

const readers = {
  score: readScore,
  value: (reader: Reader) => reader.json('value', 'number', 'true', 'false', 'string', 'object'),
  comment: (reader: Reader) => reader.json('comment', 'string'),
  correction: (reader: Reader) => reader.json('correction', 'object', 'string'),
} satisfies { [K in keyof FeedbackValues]: (reader: Reader) => Buffer | undefined };

const names = Object.keys(readers) as (keyof FeedbackValues)[];

/** Reads score, value, comment and correction. @throws INVALID_FEEDBACK */
export function readFeedbackValues(reader: Reader): FeedbackValues {
  return Object.fromEntries(names.map((name) => [name, readers[name](reader)]));
}

/**
 * Reads only those values that are present in `members`. Null removes a value; an absent value stays unchanged.
 *
 * @throws INVALID_FEEDBACK
 */
export function readChangedValues(reader: Reader, members: FeedbackMembers): FeedbackValues {
  const present = names.filter((name) => members[name] !== undefined);
  return Object.fromEntries(present.map((name) => [name, readers[name](reader)]));
}

function readScore(reader: Reader): Buffer | undefined {
  const score = reader.json('score', 'number', 'true', 'false');
  if (score === undefined) return undefined;
  const isNumber = score[0] !== 0x74 && score[0] !== 0x66;
  if (score.length > maxScoreCharacters || (isNumber && !Number.isFinite(Number(score.toString('latin1'))))) {
    throw reader.createError('score', 'exceeds the range of a 64-bit floating-point number');
  }
  return score;
}

/** Allowed types of a feedback source. Source: the public feedback schema. */
export const sourceTypes = ['api', 'model', 'app', 'auto_eval'] as const;

const defaultSource = Buffer.from('{"type":"api","metadata":{}}');

/** Reads `feedback_source` and its type; the default type is `api`. @throws INVALID_FEEDBACK */
export function readSource(reader: MemberReader<FeedbackKey>): Pick<FeedbackEvent, 'source' | 'sourceType'> {
  const source = reader.json('feedback_source', 'object') ?? defaultSource;
  const metadata = findPath(source, 0, source.length, ['metadata']);
  if (metadata !== undefined && metadata.kind !== 'object' && metadata.kind !== 'null') {
    throw reader.createError('feedback_source', 'has metadata that is not an object');
  }
  const type = findPath(source, 0, source.length, ['type']);
  if (type === undefined || type.kind === 'null') return { source, sourceType: 'api' };
  const sourceType = type.kind === 'string' ? decodeStringBytes(source, type.start, type.end) : '';
  if (!(sourceTypes as readonly string[]).includes(sourceType)) {
    throw reader.createError('feedback_source', `must have a type that is one of ${sourceTypes.join(', ')}`);
  }
  return { source, sourceType };
}

/** Returns the `metadata` of a stored source, unchanged. */
export function readSourceMetadata(source: Buffer): Buffer | undefined {
  const range = findPath(source, 0, source.length, ['metadata']);
  return range && source.subarray(range.start, range.end);
}
