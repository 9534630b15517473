/** Returns `, did you mean …` if one of `names` is similar to `name`; otherwise returns an empty text. */
export function suggestName(name: string, names: readonly string[]): string {
  const nearest = findNearestName(name.toLowerCase(), names);
  const isSimilar =
    nearest !== '' && countEdits(name.toLowerCase(), nearest) <= Math.max(1, Math.floor(nearest.length / 3));
  return isSimilar ? `, did you mean \`${nearest}\`` : '';
}

/** Returns the one of `names` that differs least from `name`. */
export function findNearestName(name: string, names: readonly string[]): string {
  const edits = names.map((known) => countEdits(name, known));
  return names[edits.indexOf(Math.min(...edits))] ?? '';
}

/** Returns the Levenshtein distance of two names. Long names are truncated, because the names come from callers. */
function countEdits(one: string, other: string): number {
  const [left, right] = [one.slice(0, 64), other.slice(0, 64)];
  let row = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let i = 1; i <= left.length; i++) {
    const next = [i];
    for (let j = 1; j <= right.length; j++) {
      const replaced = row[j - 1]! + (left[i - 1] === right[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[right.length]!;
}
