/**
 * Calls `work` for each of `items`, with at most `max` calls in flight. Continues after a rejected call.
 *
 * @param signal If aborted, no further call starts.
 * @throws the first rejection of `work`, after all calls have ended.
 */
export async function eachAtMost<Item>(
  max: number,
  items: readonly Item[],
  work: (item: Item) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  const errors: unknown[] = [];
  // All workers share one iterator, so that each item is taken once.
  const remaining = items.values();
  const worker = async () => {
    for (const item of remaining) {
      if (signal?.aborted) return;
      await work(item).catch((error) => errors.push(error));
    }
  };
  await Promise.all(Array.from({ length: Math.min(max, items.length) }, worker));
  if (errors.length > 0) throw errors[0];
}
