import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';

/**
 * The organisation for which the current work is done. The context follows the work through promises, timers and
 * callbacks.
 */
export interface TenantContext {
  readonly organizationId: string;
  /**
   * Aborted when the client disconnects or cancels the work. Set only for reads on behalf of this client, which can then
   * be cancelled.
   */
  readonly disconnected?: AbortSignal | undefined;
}

const storage = new AsyncLocalStorage<TenantContext>();

/** Runs `work` on behalf of an organisation, which is charged for the shared resources that it uses. */
export function runForTenant<Result>(context: TenantContext, work: () => Result): Result {
  return storage.run(context, work);
}

/** Runs `work` for the same organisation, and cancels its reads when `signal` is aborted. */
export function runUntilAborted<Result>(signal: AbortSignal, work: () => Result): Result {
  const context = storage.getStore();
  return context === undefined ? work() : storage.run({ ...context, disconnected: signal }, work);
}

/**
 * Runs `work` for the same organisation, but does not cancel it when the client disconnects, because other callers may
 * wait for its result.
 */
export function runDetached<Result>(work: () => Result): Result {
  const context = storage.getStore();
  if (context?.disconnected === undefined) return work();
  return storage.run({ organizationId: context.organizationId }, work);
}

/** Runs `work` without an organisation, because all organisations share its result. */
export function runWithoutTenant<Result>(work: () => Result): Result {
  return storage.exit(work);
}

/**
 * Returns what `source` yields. It is read for the current organisation, also by a stream that reads it after the handler of
 * its request has ended. Where memory is reserved is not restored: the memory of pages that are read one after the other
 * would add up.
 */
export function readForTenant<T>(source: AsyncGenerator<T>): AsyncIterable<T> {
  const context = storage.getStore();
  if (context === undefined) return source;
  const iterator = {
    next: () => storage.run(context, () => source.next()),
    return: () => storage.run(context, () => source.return(undefined)),
  };
  return { [Symbol.asyncIterator]: () => iterator };
}

/** Returns the current context; undefined for work of Runlake itself, such as the sink. */
export function getTenantContext(): TenantContext | undefined {
  return storage.getStore();
}

type ReserveMemory = (heapBytes: number, bufferBytes?: number) => void;
const memoryStorage = new AsyncLocalStorage<ReserveMemory>();

/** Runs `work`, whose calls of {@link reserveMemory} go to `reserve`. */
export function runWithMemory<Result>(reserve: ReserveMemory, work: () => Result): Result {
  return memoryStorage.run(reserve, work);
}

/**
 * Reserves memory of the current request until its response is complete. Work without a request reserves nothing.
 *
 * @param bufferBytes outside the heap
 * @throws OVERLOADED
 */
export function reserveMemory(heapBytes: number, bufferBytes = 0): void {
  memoryStorage.getStore()?.(heapBytes, bufferBytes);
}

/** Runs work that reserves memory for one of several chunks. */
export type RunInChunk = <Result>(work: () => Result) => Result;

/**
 * For chunks that are in memory one after the other, also after the handler of the current request has ended: the request
 * reserves as much as the chunk that needs most, and not their sum.
 */
export function createChunkMemory(): RunInChunk {
  const reserve = AsyncResource.bind(reserveMemory);
  const reserved = { heapBytes: 0, bufferBytes: 0 };
  return (work) => {
    const needed = { heapBytes: 0, bufferBytes: 0 };
    return runWithMemory((heapBytes, bufferBytes = 0) => {
      needed.heapBytes += heapBytes;
      needed.bufferBytes += bufferBytes;
      const missingHeap = Math.max(0, needed.heapBytes - reserved.heapBytes);
      const missingBuffer = Math.max(0, needed.bufferBytes - reserved.bufferBytes);
      if (missingHeap + missingBuffer === 0) return;
      reserve(missingHeap, missingBuffer);
      reserved.heapBytes += missingHeap;
      reserved.bufferBytes += missingBuffer;
    }, work);
  };
}

/** Size of stored texts for which a request does not reserve memory. */
export const unreservedTextBytes = 2 * 1024 ** 2;

/**
 * Reserves memory for stored texts of `bytes` that the response contains as they are: as they are read, and in the
 * response.
 *
 * @throws OVERLOADED
 */
export function reserveTexts(bytes: number): void {
  if (bytes > unreservedTextBytes) reserveMemory(0, 2 * bytes);
}
