import type { Sender } from '../../../pipelines/ingest/accept/publish-runs.ts';
import type { WorkspaceCaller } from '../../../pipelines/tenants/caller.ts';

/** Returns the sender that is stored with each run. */
export function senderOf({ workspaceId, userId, keyId }: WorkspaceCaller): Sender {
  return { workspaceId, userId, keyId };
}
