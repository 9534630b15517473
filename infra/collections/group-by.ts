/**
 * Groups the elements of `all` by a key, in their order; the groups are in the order of their first elements. A list may
 * have a million elements, so no list is searched for each element.
 */
export function groupBy<Each>(all: readonly Each[], toKey: (each: Each) => string): Map<string, Each[]> {
  const groups = new Map<string, Each[]>();
  for (const each of all) {
    const key = toKey(each);
    const group = groups.get(key);
    if (group) group.push(each);
    else groups.set(key, [each]);
  }
  return groups;
}
