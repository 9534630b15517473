import type { GraphsFile } from '../../pipelines/agents/graphs/graphs-file.ts';
import type { Operation } from '../server/operation.ts';
import { agentOperations } from './operations.ts';

/**
 * Tags of the operations that each setting of `http` disables. `webhooks`, `mcp` and `a2a` are checked where they are used.
 */
const tagsOff = {
  disable_assistants: ['assistants'],
  disable_threads: ['threads'],
  disable_runs: ['thread runs', 'stateless runs', 'crons', 'event protocol'],
  disable_store: ['store'],
  disable_meta: ['system'],
} as const;

/**
 * Returns the operations that `http` of a langgraph.json does not disable; disabled operations respond with 404. `/ok`
 * is always enabled, for liveness probes.
 */
export function servedOperations(http: GraphsFile['http']): readonly Operation[] {
  const off = new Set<string>(
    Object.entries(tagsOff).flatMap(([name, tags]) => (http[name as keyof typeof tagsOff] ? tags : [])),
  );
  return agentOperations.filter(({ tag, operationId }) => !off.has(tag) || operationId === 'getAgentOk');
}
