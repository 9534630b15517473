import { randomUUID } from 'node:crypto';
import type { Sql } from '../../../../infra/postgres/database.ts';

/** An organisation with an assistant and a thread. */
export async function makeAgentRows(sql: Sql): Promise<{
  readonly organizationId: string;
  readonly assistantId: string;
  readonly threadId: string;
}> {
  const [organizationId, assistantId, threadId] = [randomUUID(), randomUUID(), randomUUID()];
  await sql.execute('INSERT INTO organizations (id, display_name) VALUES ($1, $2)', [organizationId, 'test']);
  await sql.execute(
    `INSERT INTO agents.assistants (organization_id, assistant_id, graph_id, name) VALUES ($1, $2, 'echo', 'echo')`,
    [organizationId, assistantId],
  );
  await sql.execute('INSERT INTO agents.threads (organization_id, thread_id) VALUES ($1, $2)', [
    organizationId,
    threadId,
  ]);
  return { organizationId, assistantId, threadId };
}
