import { type Caller, requirePermission } from '../../../pipelines/tenants/caller.ts';

/** A read-only key must not cancel a run by disconnecting. @throws FORBIDDEN */
export function requireCancelPermission(caller: Caller, cancelOnDisconnect: boolean): void {
  if (cancelOnDisconnect) requirePermission(caller, 'agents:run');
}
