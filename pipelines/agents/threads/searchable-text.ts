import { jsonbText } from '../checkpoints/jsonb-text.ts';

/** What larger values are not searched by. */
const mostCharacters = 1024 * 1024;

/** JSON text as `jsonb` takes it, to be searched; null where it is too large for that. */
export function searchableText(text: string): string | null {
  return text.length > mostCharacters ? null : jsonbText(text);
}
