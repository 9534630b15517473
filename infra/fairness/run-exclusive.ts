/**
 * Serialises operations on the same object.
 *
 * Invariant: in this process, at most one operation per key runs at a time, in the order of the calls. There is no such
 * guarantee across processes.
 *
 *   1. An operation waits until the previous operation for its key has succeeded or failed.
 *   2. The last operation for a key removes the key.
 */
const lastOperationByKey = new Map<string, Promise<unknown>>();

/** Runs `work` while no other operation for `key` runs. Resolves or rejects with the result of `work`. */
export async function runExclusive<T>(key: string, work: () => Promise<T>): Promise<T> {
  const previous = lastOperationByKey.get(key) ?? Promise.resolve();
  const current = previous.then(work, work);
  lastOperationByKey.set(key, current);
  try {
    return await current;
  } finally {
    if (lastOperationByKey.get(key) === current) lastOperationByKey.delete(key);
  }
}
