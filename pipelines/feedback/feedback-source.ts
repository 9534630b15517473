import type { MemberReader } from '../ingest/accept/read-members.ts';
import { findPath } from '../ingest/json/find.ts';
import { textOfString } from '../ingest/json/text.ts';
import type { FeedbackEvent } from './feedback-event.ts';
import type { FeedbackKey } from './feedback-members.ts';

/** Allowed types of a feedback source. Source: the public feedback schema. */
export const sourceTypes = ['api', 'model', 'app', 'auto_eval'] as const;

const defaultSource = Buffer.from('{"type":"api","metadata":{}}');

/** Reads `feedback_source` and its type; the default type is `api`. @throws INVALID_FEEDBACK */
export function readSource(reader: MemberReader<FeedbackKey>): Pick<FeedbackEvent, 'source' | 'sourceType'> {
  const source = reader.json('feedback_source', 'object') ?? defaultSource;
  const metadata = findPath(source, 0, source.length, ['metadata']);
  if (metadata !== undefined && metadata.kind !== 'object' && metadata.kind !== 'null') {
    throw reader.misfit('feedback_source', 'has metadata that is not an object');
  }
  const type = findPath(source, 0, source.length, ['type']);
  if (type === undefined || type.kind === 'null') return { source, sourceType: 'api' };
  const sourceType = type.kind === 'string' ? textOfString(source, type.start, type.end) : '';
  if (!(sourceTypes as readonly string[]).includes(sourceType)) {
    throw reader.misfit('feedback_source', `must have a type that is one of ${sourceTypes.join(', ')}`);
  }
  return { source, sourceType };
}

/** `metadata` of a stored source, unchanged. */
export function sourceMetadata(source: Buffer): Buffer | undefined {
  const range = findPath(source, 0, source.length, ['metadata']);
  return range && source.subarray(range.start, range.end);
}
