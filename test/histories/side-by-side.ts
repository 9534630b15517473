/**
 * Does `work` for each item, with at most this many items at a time.
 *
 * @throws the first error.
 */
export async function forEachConcurrently<T>(
  items: Iterable<T>,
  work: (item: T) => Promise<void>,
  width = 8,
): Promise<void> {
  // All workers share one iterator: each of them takes the next item.
  const rest = [...items].values();
  const worker = async () => {
    for (const item of rest) await work(item);
  };
  await Promise.all(Array.from({ length: width }, worker));
}
