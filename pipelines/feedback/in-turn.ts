/**
 * Turns: work on one thing that reads, changes and writes it.
 *
 * Invariant: of all work under one key in this process one is under way at a time, in the order in which it was asked for.
 * Between processes nothing is promised: there the later write of a feedback wins whole.
 *
 *   1. Work that is asked for waits for the work that was asked for before, however that ends.
 *   2. The last one takes the key away again.
 */
const lastOf = new Map<string, Promise<unknown>>();

/** Resolves or rejects as `work` does. */
export async function inTurn<T>(key: string, work: () => Promise<T>): Promise<T> {
  const before = lastOf.get(key) ?? Promise.resolve();
  const mine = before.then(work, work);
  lastOf.set(key, mine);
  try {
    return await mine;
  } finally {
    if (lastOf.get(key) === mine) lastOf.delete(key);
  }
}
