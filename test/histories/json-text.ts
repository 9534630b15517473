/**
 * Returns the members of a JSON object, or the items of an array by index, as their original text. The text must be
 * valid.
 */
export function splitJson(text: string): Map<string, string> {
  const parts = new Map<string, string>();
  let depth = 0;
  let isInString = false;
  let start = 1;
  let name: string | undefined;
  const isObject = text[0] === '{';
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (isInString) {
      if (character === '\\') at++;
      else if (character === '"') isInString = false;
    } else if (character === '"') isInString = true;
    else if (character === '{' || character === '[') depth++;
    else if (depth === 1 && character === ':' && isObject && name === undefined) {
      name = JSON.parse(text.slice(start, at)) as string;
      start = at + 1;
    } else if (depth === 1 && (character === ',' || character === '}' || character === ']')) {
      if (at > start) parts.set(name ?? String(parts.size), text.slice(start, at));
      name = undefined;
      start = at + 1;
      if (character !== ',') depth--;
    } else if (character === '}' || character === ']') depth--;
  }
  return parts;
}
