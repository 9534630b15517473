import type { Database } from '../../../infra/postgres/database.ts';
import type { GraphConfig } from '../runs/run.ts';
import { keepVersion } from './assistant-row.ts';
import { systemAssistantId } from './system-assistant.ts';

export interface GraphOfAssistant {
  readonly graphId: string;
  readonly name: string;
  readonly description: string | null;
  readonly config?: GraphConfig;
  readonly context?: unknown;
}

/** Makes the assistants of graphs that have none yet; what somebody changed in one that is there stays. */
export async function ensureSystemAssistants(
  database: Database,
  deploymentId: string,
  graphs: readonly GraphOfAssistant[],
): Promise<void> {
  for (const { graphId, name, description, config = {}, context } of graphs) {
    const id = systemAssistantId(graphId);
    await database.transaction(async (tx) => {
      const made = await tx.execute(
        `INSERT INTO agents.assistants (deployment_id, assistant_id, graph_id, name, description, config, context, metadata)
         VALUES ($1, $2, $3, $4, $5, $6, $7, '{"created_by": "system"}') ON CONFLICT DO NOTHING`,
        [deploymentId, id, graphId, name, description, JSON.stringify(config), contextText(context)],
      );
      if (made > 0) await tx.execute(keepVersion, [deploymentId, id]);
    });
  }
}

/** The context of an assistant as it is stored: none is an empty one. */
export function contextText(context: unknown): string {
  return JSON.stringify(context ?? {});
}
