/**
 * Prefetches one item of `source` while the consumer uses the previous one. Ending early waits for the item in flight,
 * so that nothing of the source runs afterwards: abort its work first.
 */
export async function* prefetch<Item>(source: AsyncGenerator<Item>): AsyncGenerator<Item> {
  const fetchNext = () => {
    const fetched = source.next();
    // The failure surfaces when the consumer awaits this item.
    fetched.catch(() => undefined);
    return fetched;
  };
  let next = fetchNext();
  try {
    for (;;) {
      const { done, value } = await next;
      if (done) return;
      next = fetchNext();
      yield value;
    }
  } finally {
    await next.catch(() => undefined);
    await source.return(undefined);
  }
}
