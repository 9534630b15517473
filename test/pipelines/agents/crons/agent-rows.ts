import { randomUUID } from 'node:crypto';
import type { Sql } from '../../../../infra/postgres/database.ts';
import { addDeployment } from '../../../agents/add-deployment.ts';

/** Creates a deployment with an assistant and a thread. */
export async function makeAgentRows(sql: Sql): Promise<{
  readonly deploymentId: string;
  readonly assistantId: string;
  readonly threadId: string;
}> {
  const deploymentId = await addDeployment(sql);
  const [assistantId, threadId] = [randomUUID(), randomUUID()];
  await sql.execute(
    `INSERT INTO agents.assistants (deployment_id, assistant_id, graph_id, name) VALUES ($1, $2, 'echo', 'echo')`,
    [deploymentId, assistantId],
  );
  await sql.execute('INSERT INTO agents.threads (deployment_id, thread_id) VALUES ($1, $2)', [deploymentId, threadId]);
  return { deploymentId, assistantId, threadId };
}
