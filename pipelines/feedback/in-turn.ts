/**
 * Serialises read-modify-write operations on one object.
 *
 * Invariant: in this process, at most one operation per key runs at a time, in the order of the calls. Across processes
 * there is no such guarantee: the later write of a feedback wins as a whole.
 *
 *   1. An operation waits until the previous one for its key has ended, also with an error.
 *   2. The last operation removes the key.
 */
const lastByKey = new Map<string, Promise<unknown>>();

/** Runs `work` exclusively for `key`; resolves or rejects as `work` does. */
export async function runExclusive<T>(key: string, work: () => Promise<T>): Promise<T> {
  const previous = lastByKey.get(key) ?? Promise.resolve();
  const current = previous.then(work, work);
  lastByKey.set(key, current);
  try {
    return await current;
  } finally {
    if (lastByKey.get(key) === current) lastByKey.delete(key);
  }
}
