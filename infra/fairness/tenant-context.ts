import { AsyncLocalStorage } from 'node:async_hooks';

/** For whom work is done. It follows the work through promises, timers and callbacks. */
export interface TenantContext {
  readonly organizationId: string;
  /** Aborted when the client has disconnected. Set only where the work does nothing but read for that client. */
  readonly disconnected?: AbortSignal | undefined;
}

const storage = new AsyncLocalStorage<TenantContext>();

/** Runs `work` for an organisation: what it takes from shared resources is counted as that organisation's. */
export function runForTenant<Result>(context: TenantContext, work: () => Result): Result {
  return storage.run(context, work);
}

/** Runs `work` for the same organisation, but not for the client alone: others may wait for its result. */
export function runDetached<Result>(work: () => Result): Result {
  const context = storage.getStore();
  if (context?.disconnected === undefined) return work();
  return storage.run({ organizationId: context.organizationId }, work);
}

/** Runs `work` for no organisation: what one organisation started serves all of them. */
export function runForRunlake<Result>(work: () => Result): Result {
  return storage.exit(work);
}

/** Undefined for work of Runlake itself, such as the sink. */
export function tenantContext(): TenantContext | undefined {
  return storage.getStore();
}
