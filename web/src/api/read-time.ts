import { hashKey, useQueryClient } from '@tanstack/react-query';
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
 * query keys begin with one of `names` and `scope`, and end with the filters and this time. A visit reads the lists
 * anew; back and forward show them as they were, with the pages that were loaded. Lists of earlier times are forgotten.
 */
export function useReadTime(names: readonly string[], scope: string, filters: object) {
  const client = useQueryClient();
  const [now, setNow] = useState(() => {
    if (!isReturn) return Date.now();
    const wanted = hashKey([names[0], scope, filters]);
    const kept = client
      .getQueryCache()
      .findAll({ predicate: ({ queryKey }) => hashKey(queryKey.slice(0, -1)) === wanted });
    return Number(kept.at(-1)?.queryKey.at(-1) ?? Date.now());
  });
  useEffect(
    () =>
      client.removeQueries({
        type: 'inactive',
        predicate: ({ queryKey: [name, of, , at] }) => names.includes(String(name)) && of === scope && at !== now,
      }),
    [client, names, scope, now],
  );
  return { now, readAnew: useCallback(() => setNow(Date.now()), []) };
}
