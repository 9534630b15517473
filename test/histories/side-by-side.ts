/** Does `work` for each item, so many of them at a time. @throws what the first one that fails throws. */
export async function sideBySide<T>(items: Iterable<T>, work: (item: T) => Promise<void>, width = 8): Promise<void> {
  // One iterator for all: each takes the next item.
  const rest = [...items].values();
  const hand = async () => {
    for (const item of rest) await work(item);
  };
  await Promise.all(Array.from({ length: width }, hand));
}
