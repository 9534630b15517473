import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import { updateThreadStatus } from '../runs/lock-thread.ts';
import { removeRuns } from '../runs/remove-runs.ts';
import { removeThreads } from '../threads/delete-thread.ts';

/**
 * Deletes an assistant with its versions and runs. With `deleteThreads` it also deletes the threads whose metadata
 * names the assistant.
 *
 * @throws ASSISTANT_NOT_FOUND
 */
export async function deleteAssistant(
  database: Database,
  deploymentId: string,
  assistantId: string,
  { deleteThreads = false }: { readonly deleteThreads?: boolean | undefined },
): Promise<void> {
  await database.transaction(async (tx) => {
    const deleted = await tx.execute('DELETE FROM agents.assistants WHERE deployment_id = $1 AND assistant_id = $2', [
      deploymentId,
      assistantId,
    ]);
    if (deleted === 0) throw runlakeError('ASSISTANT_NOT_FOUND', { assistant: assistantId });
    const lockThreads = async (condition: string, value: unknown) => {
      const rows = await tx.query<{ thread_id: string }>(
        `SELECT thread_id FROM agents.threads WHERE deployment_id = $1 AND ${condition} ORDER BY thread_id FOR UPDATE`,
        [deploymentId, value],
      );
      return rows.map(({ thread_id }) => thread_id);
    };
    if (deleteThreads) {
      await removeThreads(tx, deploymentId, await lockThreads('metadata @> $2', { assistant_id: assistantId }));
    }
    const used = await lockThreads(
      'thread_id IN (SELECT thread_id FROM agents.runs WHERE deployment_id = $1 AND assistant_id = $2)',
      assistantId,
    );
    await removeRuns(tx, deploymentId, used, assistantId);
    for (const threadId of used) await updateThreadStatus(tx, deploymentId, threadId);
  });
}
