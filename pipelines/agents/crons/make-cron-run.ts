import { v7 as uuidv7 } from 'uuid';
import type { Sql } from '../../../infra/postgres/database.ts';
import { resolveAssistant } from '../assistants/resolve-assistant.ts';
import type { AgentUser } from '../auth/agent-user.ts';
import { endUserId } from '../auth/end-user.ts';
import { createRun } from '../runs/create-run.ts';
import type { GraphConfig } from '../runs/run.ts';
import { readRunRequest } from '../runs/run-request.ts';
import type { ThreadTtl } from '../threads/create-thread.ts';
import { findThread } from '../threads/read-thread.ts';
import { recordThreadConfig } from '../threads/record-thread-config.ts';
import type { WebhookRules } from '../webhooks/webhook-rules.ts';
import type { Cron } from './cron.ts';

/**
 * Creates the run of a cron that fires, as if a client had sent the payload. The metadata of the run contains
 * `cron_id`. Returns the id of the run.
 *
 * @throws ASSISTANT_NOT_FOUND, THREAD_NOT_FOUND, THREAD_BUSY, WEBHOOK_INVALID, FEEDBACK_ADDRESS_UNSET
 */
export async function makeCronRun(
  tx: Sql,
  deploymentId: string,
  cron: Cron,
  rules: {
    readonly webhooks?: Pick<WebhookRules, 'check'>;
    readonly takesFeedback?: boolean | undefined;
    readonly threadTtl?: ThreadTtl | undefined;
    /** The organisation of the deployment. */
    readonly organizationId: string;
  },
): Promise<string> {
  const assistant = await resolveAssistant(tx, deploymentId, cron.assistant_id);
  const stateless = cron.thread_id === null;
  // Written only by the server: under custom authentication the cron acts for its creator, and has the creator's
  // required metadata.
  const user = cron.payload.on_behalf_of as AgentUser | undefined;
  const threadAccess = user && { required: undefined, metadata: cron.metadata };
  const thread = cron.thread_id === null ? undefined : await findThread(tx, deploymentId, cron.thread_id);
  const ids = { runId: uuidv7(), threadId: cron.thread_id ?? uuidv7() };
  const { cancelOnDisconnect: _, ...wanted } = readRunRequest(
    {
      ...cron.payload,
      assistant_id: cron.assistant_id,
      metadata: { ...cron.metadata, cron_id: cron.cron_id },
      on_completion: cron.on_run_completed,
    },
    {
      ...{ assistant, thread, ...ids, stateless, userId: cron.user_id ?? 'cron', headers: {}, user },
      ...{ webhooks: rules.webhooks, takesFeedback: rules.takesFeedback },
    },
  );
  const endUser = user && { userId: await endUserId(tx, rules.organizationId, user.identity) };
  await createRun(tx, deploymentId, {
    assistant,
    ...wanted,
    ...ids,
    stateless,
    threadAccess,
    threadTtl: rules.threadTtl,
    sender: endUser,
    callerId: endUser?.userId,
  });
  await recordThreadConfig(
    tx,
    { deploymentId, ...ids },
    assistant.config,
    cron.payload.config as GraphConfig | undefined,
    thread?.config,
  );
  return ids.runId;
}
