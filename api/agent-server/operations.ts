import type { GraphsFile } from '../../pipelines/agents/graphs/graphs-file.ts';
import { getAgentCard, postA2a } from './a2a/a2a.ts';
import type { AgentOperation } from './agent-operation.ts';
import {
  getAssistantGraph,
  getAssistantSchemas,
  getAssistantSubgraph,
  getAssistantSubgraphs,
} from './assistant-graphs.ts';
import {
  countAssistants,
  createAssistant,
  deleteAssistant,
  getAssistant,
  listAssistantVersions,
  searchAssistants,
  setAssistantVersion,
  updateAssistant,
} from './assistants.ts';
import { countCrons, createCron, createThreadCron, deleteCron, getCron, searchCrons, updateCron } from './crons.ts';
import { deleteMcp, postMcp } from './mcp.ts';
import { postThreadCommand } from './protocol/post-command.ts';
import { streamThreadEvents } from './protocol/thread-events.ts';
import { openThreadSocket } from './protocol/thread-socket.ts';
import { cancelAgentRun, cancelAgentRuns, deleteAgentRun } from './runs/cancel.ts';
import {
  createRun,
  createRunBatch,
  createStatelessRun,
  streamRun,
  streamStatelessRun,
  waitForRun,
  waitForStatelessRun,
} from './runs/create.ts';
import { getAgentRun, joinRun, joinRunStream, joinStatelessRunStream, listRuns } from './runs/read.ts';
import { deleteStoreItem, getStoreItem, listStoreNamespaces, putStoreItem, searchStoreItems } from './store.ts';
import { streamThread } from './streaming/stream-thread.ts';
import { getAgentInfo, getAgentMetrics, getAgentOk, truncate } from './system.ts';
import {
  getThreadHistory,
  getThreadState,
  getThreadStateAt,
  getThreadStateOf,
  searchThreadHistory,
  updateThreadState,
} from './thread-state.ts';
import {
  copyThread,
  countThreads,
  createThread,
  deleteThread,
  getThread,
  patchThreadState,
  pruneThreads,
  searchThreads,
  updateThread,
} from './threads.ts';

/**
 * All operations of the agent server. To add an operation, add it here and to the table in
 * `test/api/agent-server/tenancy.test.ts`.
 */
export const agentOperations: readonly AgentOperation[] = [
  // system
  getAgentOk,
  getAgentInfo,
  getAgentMetrics,
  truncate,
  // assistants
  createAssistant,
  searchAssistants,
  countAssistants,
  getAssistant,
  updateAssistant,
  deleteAssistant,
  getAssistantGraph,
  getAssistantSchemas,
  getAssistantSubgraphs,
  getAssistantSubgraph,
  listAssistantVersions,
  setAssistantVersion,
  // threads
  createThread,
  searchThreads,
  countThreads,
  pruneThreads,
  getThread,
  updateThread,
  deleteThread,
  copyThread,
  getThreadState,
  getThreadStateAt,
  getThreadStateOf,
  updateThreadState,
  patchThreadState,
  getThreadHistory,
  searchThreadHistory,
  // runs
  createRun,
  streamRun,
  waitForRun,
  listRuns,
  getAgentRun,
  deleteAgentRun,
  cancelAgentRun,
  cancelAgentRuns,
  joinRun,
  joinRunStream,
  createStatelessRun,
  streamStatelessRun,
  waitForStatelessRun,
  createRunBatch,
  joinStatelessRunStream,
  streamThread,
  // event protocol
  postThreadCommand,
  streamThreadEvents,
  openThreadSocket,
  // crons
  createCron,
  createThreadCron,
  searchCrons,
  countCrons,
  getCron,
  updateCron,
  deleteCron,
  // store
  putStoreItem,
  getStoreItem,
  deleteStoreItem,
  searchStoreItems,
  listStoreNamespaces,
  // mcp
  postMcp,
  deleteMcp,
  // a2a
  postA2a,
  getAgentCard,
];

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
