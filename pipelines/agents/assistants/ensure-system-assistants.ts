import type { Database } from '../../../infra/postgres/database.ts';
import type { GraphConfig } from '../runs/run.ts';
import { insertVersionSql } from './assistant-row.ts';
import { systemAssistantId } from './system-assistant.ts';

export interface GraphOfAssistant {
  readonly graphId: string;
  readonly name: string;
  readonly description: string | null;
  readonly config?: GraphConfig;
  readonly context?: unknown;
}

/** Creates the system assistant of each graph that has none. Leaves existing ones as they are, with the changes of users. */
export async function ensureSystemAssistants(
  database: Database,
  deploymentId: string,
  graphs: readonly GraphOfAssistant[],
): Promise<void> {
  for (const { graphId, name, description, config = {}, context } of graphs) {
    const id = systemAssistantId(graphId);
    await database.transaction(async (tx) => {
      const created = await tx.execute(
        `INSERT INTO agents.assistants (deployment_id, assistant_id, graph_id, name, description, config, context, metadata)
         VALUES ($1, $2, $3, $4, $5, $6, $7, '{"created_by": "system"}') ON CONFLICT DO NOTHING`,
        [deploymentId, id, graphId, name, description, JSON.stringify(config), contextText(context)],
      );
      if (created > 0) await tx.execute(insertVersionSql, [deploymentId, id]);
    });
  }
}

/** The context of an assistant as JSON text, as stored; an empty object if there is none. */
export function contextText(context: unknown): string {
  return JSON.stringify(context ?? {});
}
