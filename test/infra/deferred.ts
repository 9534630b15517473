import { raceWithAbort } from '../../infra/timeouts/with-timeout.ts';

/** Returns a promise with its resolve function, as `Promise.withResolvers` does in Node 22. */
export function deferred(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve = () => {};
  const promise = new Promise<void>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

/** Rejects with the reason of the signal when it is aborted, also if it is already. */
export function untilAborted(signal: AbortSignal | undefined): Promise<never> {
  return raceWithAbort(new Promise<never>(() => undefined), signal);
}
