/**
 * Does `work` for each of `items`, for at most `most` of them at the same time: the next one is begun when one is over. The items
 * behind one whose work was rejected are worked on nevertheless.
 *
 * @param signal Once it is aborted no further one is begun.
 * @throws the first rejection of `work`, when all is over.
 */
export async function eachAtMost<Item>(
  most: number,
  items: readonly Item[],
  work: (item: Item) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  const faults: unknown[] = [];
  // One iterator for all, so that each item is taken once.
  const left = items.values();
  const lane = async () => {
    for (const item of left) {
      if (signal?.aborted) return;
      await work(item).catch((error) => faults.push(error));
    }
  };
  await Promise.all(Array.from({ length: Math.min(most, items.length) }, lane));
  if (faults.length > 0) throw faults[0];
}
