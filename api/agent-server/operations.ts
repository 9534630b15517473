import type { GraphsFile } from '../../pipelines/agents/graphs/graphs-file.ts';
import { listByTag } from '../server/operation.ts';
import { a2aOperations } from './a2a/a2a.ts';
import type { AgentOperation } from './agent-operation.ts';
import { assistantGraphOperations } from './assistant-graphs.ts';
import { assistantOperations } from './assistants.ts';
import { cronOperations } from './crons.ts';
import { mcpOperations } from './mcp.ts';
import { postThreadCommand } from './protocol/post-command.ts';
import { streamThreadEvents } from './protocol/thread-events.ts';
import { openThreadSocket } from './protocol/thread-socket.ts';
import { cancelRunOperations } from './runs/cancel.ts';
import { createRunOperations, createStatelessRunOperations } from './runs/create.ts';
import { joinStatelessRunStream, readRunOperations } from './runs/read.ts';
import { storeOperations } from './store.ts';
import { streamThread } from './streaming/stream-thread.ts';
import { systemOperations } from './system.ts';
import { threadStateOperations } from './thread-state.ts';
import { threadOperations } from './threads.ts';
import { uiOperations } from './ui.ts';

/**
 * All operations of the agent server. To add an operation, add it to the list of its file and to the table in
 * `test/api/agent-server/tenancy.test.ts`.
 */
export const agentOperations: readonly AgentOperation[] = listByTag({
  system: systemOperations,
  assistants: [...assistantOperations, ...assistantGraphOperations],
  threads: [...threadOperations, ...threadStateOperations, streamThread],
  'thread runs': [...createRunOperations, ...readRunOperations, ...cancelRunOperations],
  'stateless runs': [...createStatelessRunOperations, joinStatelessRunStream],
  'event protocol': [postThreadCommand, streamThreadEvents, openThreadSocket],
  crons: cronOperations,
  store: storeOperations,
  mcp: mcpOperations,
  a2a: a2aOperations,
  ui: uiOperations,
});

/**
 * The tags of the operations that each setting in `http` disables. `disable_webhooks`, `disable_mcp` and `disable_a2a`
 * are not listed; the code that they apply to checks them.
 */
const tagsByDisableFlag = {
  disable_assistants: ['assistants'],
  disable_threads: ['threads'],
  disable_runs: ['thread runs', 'stateless runs', 'crons', 'event protocol'],
  disable_store: ['store'],
  disable_meta: ['system'],
  disable_ui: ['ui'],
} as const;

/**
 * Returns the operations that `http` of a langgraph.json does not disable. Disabled operations respond with 404. `/ok`
 * cannot be disabled, because liveness probes use it.
 */
export function listServedOperations(http: GraphsFile['http']): readonly AgentOperation[] {
  const off = new Set<string>(
    Object.entries(tagsByDisableFlag).flatMap(([name, tags]) =>
      http[name as keyof typeof tagsByDisableFlag] ? tags : [],
    ),
  );
  return agentOperations.filter(({ tag, operationId }) => !off.has(tag) || operationId === 'getAgentOk');
}
