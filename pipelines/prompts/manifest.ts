import { findPath } from '../ingest/json/find.ts';

/** Last part of the LangChain id of a prompt that is piped into a model. */
const sequence = 'RunnableSequence';

/**
 * If the manifest is a prompt piped into a model, returns the prompt alone, byte for byte; otherwise returns the
 * manifest unchanged. SDKs commit both together, and expect the prompt alone unless they request the model.
 */
export function stripModel(manifest: string): string {
  if (!manifest.includes(sequence)) return manifest;
  const bytes = Buffer.from(manifest);
  const at = (...path: string[]) => findPath(bytes, 0, bytes.length, path);
  const id = at('id');
  const first = at('kwargs', 'first');
  const idOfFirst = at('kwargs', 'first', 'id');
  if (id?.kind !== 'array' || first?.kind !== 'object' || idOfFirst?.kind !== 'array') return manifest;
  const names = (range: { start: number; end: number }) =>
    JSON.parse(bytes.toString('utf8', range.start, range.end)) as unknown[];
  if (names(id).at(-1) !== sequence || !names(idOfFirst).includes('prompts')) return manifest;
  return bytes.toString('utf8', first.start, first.end);
}
