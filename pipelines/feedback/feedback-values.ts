import type { MemberReader } from '../ingest/accept/read-members.ts';
import type { FeedbackValues } from './feedback-event.ts';
import type { FeedbackKey, FeedbackMembers } from './feedback-members.ts';

type Reader = MemberReader<FeedbackKey>;

/** Longer numbers are no scores. */
const maxScoreCharacters = 400;

const readers = {
  score: scoreOf,
  value: (reader: Reader) => reader.json('value', 'number', 'true', 'false', 'string', 'object'),
  comment: (reader: Reader) => reader.json('comment', 'string'),
  correction: (reader: Reader) => reader.json('correction', 'object', 'string'),
} satisfies { [K in keyof FeedbackValues]: (reader: Reader) => Buffer | undefined };

const names = Object.keys(readers) as (keyof FeedbackValues)[];

/** Score, value, comment and correction. @throws INVALID_FEEDBACK */
export function readFeedbackValues(reader: Reader): FeedbackValues {
  return Object.fromEntries(names.map((name) => [name, readers[name](reader)]));
}

/** Those that `members` speak of: a null takes the value away, an absent one leaves it. @throws INVALID_FEEDBACK */
export function readChangedValues(reader: Reader, members: FeedbackMembers): FeedbackValues {
  const said = names.filter((name) => members[name] !== undefined);
  return Object.fromEntries(said.map((name) => [name, readers[name](reader)]));
}

function scoreOf(reader: Reader): Buffer | undefined {
  const score = reader.json('score', 'number', 'true', 'false');
  if (score === undefined) return undefined;
  const isNumber = score[0] !== 0x74 && score[0] !== 0x66;
  if (score.length > maxScoreCharacters || (isNumber && !Number.isFinite(Number(score.toString('latin1'))))) {
    throw reader.misfit('score', 'is beyond what a 64-bit floating-point number holds');
  }
  return score;
}
