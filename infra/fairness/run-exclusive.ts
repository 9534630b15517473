/**
 * Serialises operations on the same object.
 *
 * Invariant: in this process, at most one operation per key runs at a time, in the order of the calls. There is no such
 * guarantee across processes.
 *
 *   1. An operation waits until the previous operation for its key has succeeded or failed.
 *   2. An operation for several keys waits for one after the other, in the order of the keys, so that two operations
 *      never wait for each other.
 *   3. An operation whose wait is limited is refused at its limit. It is forgotten then, and ends its turns for the keys for
 *      which it waits no longer.
 *   4. The last operation for a key removes the key.
 */
const lastOperationByKey = new Map<string, Promise<unknown>>();

/**
 * Runs `work` while no other operation for `key` runs. Resolves or rejects with the result of `work`, which must not
 * wait for another operation for the same key.
 */
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

export interface WaitLimit {
  readonly maxWaitMs: number;
  /** Creates the error of an operation whose turn has not come by then. */
  readonly createError: () => Error;
}

/** Like {@link runExclusive}, but while no other operation for any of the keys runs, and with a limit of the wait. */
export function runExclusiveForAll<T>(
  keys: readonly string[],
  { maxWaitMs, createError }: WaitLimit,
  work: () => Promise<T>,
): Promise<T> {
  const latestStart = performance.now() + maxWaitMs;
  // Forgotten when it is refused, because it may hold much memory, and an earlier operation may never end.
  const operation: { work?: () => Promise<T> } = { work };
  let timer: NodeJS.Timeout | undefined;
  const refused = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      delete operation.work;
      reject(createError());
    }, maxWaitMs);
  });
  const start = async () => {
    clearTimeout(timer);
    if (operation.work === undefined || performance.now() > latestStart) throw createError();
    return operation.work();
  };
  return waitInOrder([...new Set(keys)].sort(), start, refused);
}

async function waitInOrder<T>(
  [first, ...others]: readonly string[],
  start: () => Promise<T>,
  refused: Promise<never>,
): Promise<T> {
  if (first === undefined) return start();
  return Promise.race([runExclusive(first, () => waitInOrder(others, start, refused)), refused]);
}
