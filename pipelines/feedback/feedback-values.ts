import type { MemberReader } from '../ingest/accept/read-members.ts';
import type { FeedbackValues } from './feedback-event.ts';
import type { FeedbackKey, FeedbackMembers } from './feedback-members.ts';

type Reader = MemberReader<FeedbackKey>;

/** Longer numbers are rejected. */
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

/** Reads only the values present in `members`: null removes a value, an absent one stays. @throws INVALID_FEEDBACK */
export function readChangedValues(reader: Reader, members: FeedbackMembers): FeedbackValues {
  const present = names.filter((name) => members[name] !== undefined);
  return Object.fromEntries(present.map((name) => [name, readers[name](reader)]));
}

function readScore(reader: Reader): Buffer | undefined {
  const score = reader.json('score', 'number', 'true', 'false');
  if (score === undefined) return undefined;
  const isNumber = score[0] !== 0x74 && score[0] !== 0x66;
  if (score.length > maxScoreCharacters || (isNumber && !Number.isFinite(Number(score.toString('latin1'))))) {
    throw reader.misfit('score', 'exceeds the range of a 64-bit floating-point number');
  }
  return score;
}
