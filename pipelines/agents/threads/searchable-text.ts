import { jsonbText } from '../checkpoints/jsonb-text.ts';

/** Values with more characters are not searchable. */
const maxCharacters = 1024 * 1024;

/** Converts the JSON text of values to the text of the searchable `jsonb` column; null if it is too large. */
export function searchableText(text: string): string | null {
  return text.length > maxCharacters ? null : jsonbText(text);
}
