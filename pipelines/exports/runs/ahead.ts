/**
 * Makes the next item of `source` while the last one is being used; never more than one.
 * Ending early waits for the item under way, so that afterwards nothing of the source goes on: abort what it does first.
 */
export async function* ahead<Item>(source: AsyncGenerator<Item>): AsyncGenerator<Item> {
  const ask = () => {
    const asked = source.next();
    // Its failure is told when its turn comes.
    asked.catch(() => undefined);
    return asked;
  };
  let next = ask();
  try {
    for (;;) {
      const { done, value } = await next;
      if (done) return;
      next = ask();
      yield value;
    }
  } finally {
    await next.catch(() => undefined);
    await source.return(undefined);
  }
}
