import { AsyncLocalStorage } from 'node:async_hooks';

/** The organisation that work is done for. The context follows the work through promises, timers and callbacks. */
export interface TenantContext {
  readonly organizationId: string;
  /** Aborted when the client disconnects. Set only for work that only reads for that client. */
  readonly disconnected?: AbortSignal | undefined;
}

const storage = new AsyncLocalStorage<TenantContext>();

/** Runs `work` for an organisation, which is charged for its use of shared resources. */
export function runForTenant<Result>(context: TenantContext, work: () => Result): Result {
  return storage.run(context, work);
}

/**
 * Runs `work` for the same organisation, but independent of the client's connection, because other callers may wait for
 * its result.
 */
export function runDetached<Result>(work: () => Result): Result {
  const context = storage.getStore();
  if (context?.disconnected === undefined) return work();
  return storage.run({ organizationId: context.organizationId }, work);
}

/** Runs `work` without an organisation, because its result serves all of them. */
export function runForRunlake<Result>(work: () => Result): Result {
  return storage.exit(work);
}

/** The current context; undefined for work of Runlake itself, such as the sink. */
export function tenantContext(): TenantContext | undefined {
  return storage.getStore();
}
