import { type Caller, requirePermission } from '../../../pipelines/tenants/caller.ts';

/** Who only reads may not stop a run by going. @throws FORBIDDEN */
export function mayCancel(caller: Caller, cancelOnDisconnect: boolean): void {
  if (cancelOnDisconnect) requirePermission(caller, 'agents:run');
}
