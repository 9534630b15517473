import { hashKey, type QueryClient, useQueryClient } from '@tanstack/react-query';
import type { RouterHistory } from '@tanstack/react-router';
import { useCallback, useEffect, useState } from 'react';

/** Whether the last navigation led back or forward to a screen that was shown before. */
let isReturn = false;

/** Lets {@link useReadTime} tell visits from returns. */
export function watchReturns(history: RouterHistory): void {
  history.subscribe(({ action: { type } }) => {
    isReturn = type !== 'PUSH' && type !== 'REPLACE';
  });
}

/**
 * The time at which the lists of a screen are read, in milliseconds since the epoch, and how to read them anew. Their
 * query keys begin with one of `names` and `scope`, and end with the filters and this time. A visit and a change of the filters
 * read the lists anew; back and forward show them as they were, with the pages that were loaded. Lists of earlier times
 * are forgotten.
 */
export function useReadTime(names: readonly string[], scope: string, filters: object) {
  const client = useQueryClient();
  const key = hashKey([names[0], scope, filters]);
  const [kept, setKept] = useState(() => ({ key, now: findTime(client, key) }));
  // A range such as the last hour ends when it is chosen.
  const current = kept.key === key ? kept : { key, now: findTime(client, key) };
  if (current !== kept) setKept(current);
  const { now } = current;
  useEffect(
    () =>
      client.removeQueries({
        type: 'inactive',
        predicate: ({ queryKey: [name, of, , at] }) => names.includes(String(name)) && of === scope && at !== now,
      }),
    [client, names, scope, now],
  );
  return { now, readAnew: useCallback(() => setKept((before) => ({ ...before, now: Date.now() })), []) };
}

/** Returns the read time of the kept list after back or forward, otherwise now. */
function findTime(client: QueryClient, key: string): number {
  if (!isReturn) return Date.now();
  const lists = client.getQueryCache().findAll({ predicate: ({ queryKey }) => hashKey(queryKey.slice(0, -1)) === key });
  return Number(lists.at(-1)?.queryKey.at(-1) ?? Date.now());
}
