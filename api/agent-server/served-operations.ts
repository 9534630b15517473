import type { GraphsFile } from '../../pipelines/agents/graphs/graphs-file.ts';
import type { Operation } from '../server/operation.ts';
import { agentOperations } from './operations.ts';

/** Tags of the operations that each switch of `http` turns off; `webhooks`, `mcp` and `a2a` are looked at where they are used. */
const tagsOff = {
  disable_assistants: ['assistants'],
  disable_threads: ['threads'],
  disable_runs: ['thread runs', 'stateless runs', 'crons', 'event protocol'],
  disable_store: ['store'],
  disable_meta: ['system'],
} as const;

/** The operations that `http` of a langgraph.json leaves; the others are not there: 404. `/ok` always is, for whoever watches the process. */
export function servedOperations(http: GraphsFile['http']): readonly Operation[] {
  const off = new Set<string>(
    Object.entries(tagsOff).flatMap(([name, tags]) => (http[name as keyof typeof tagsOff] ? tags : [])),
  );
  return agentOperations.filter(({ tag, operationId }) => !off.has(tag) || operationId === 'getAgentOk');
}
