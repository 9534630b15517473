import type { Sender } from '../../../pipelines/ingest/accept/publish-runs.ts';
import type { WorkspaceCaller } from '../../../pipelines/tenants/caller.ts';

/** Who sends, as it is stored with each run. */
export function senderOf({ workspaceId, userId, keyId }: WorkspaceCaller): Sender {
  return { workspaceId, userId, keyId };
}
