import type { Operation } from '../server/operation.ts';
import { getAgentCard } from './a2a/get-agent-card.ts';
import { postA2a } from './a2a/post-a2a.ts';
import { countAssistants } from './assistants/count-assistants.ts';
import { createAssistant } from './assistants/create-assistant.ts';
import { deleteAssistant } from './assistants/delete-assistant.ts';
import { getAssistant } from './assistants/get-assistant.ts';
import { getAssistantGraph } from './assistants/get-graph.ts';
import { getAssistantSchemas } from './assistants/get-schemas.ts';
import { getAssistantSubgraph, getAssistantSubgraphs } from './assistants/get-subgraphs.ts';
import { listAssistantVersions } from './assistants/list-assistant-versions.ts';
import { searchAssistants } from './assistants/search-assistants.ts';
import { setAssistantVersion } from './assistants/set-assistant-version.ts';
import { updateAssistant } from './assistants/update-assistant.ts';
import { countCrons, createCron, createThreadCron, deleteCron, getCron, searchCrons, updateCron } from './crons.ts';
import { deleteMcp, postMcp } from './mcp/post-mcp.ts';
import { postThreadCommand } from './protocol/post-command.ts';
import { openThreadSocket } from './protocol/thread-socket.ts';
import { streamThreadEvents } from './protocol/thread-stream.ts';
import { runOperations } from './runs/run-operations.ts';
import { deleteStoreItem, getStoreItem, listStoreNamespaces, putStoreItem, searchStoreItems } from './store.ts';
import { getAgentInfo, getAgentMetrics, getAgentOk, truncate } from './system.ts';
import { copyThread } from './threads/copy-thread.ts';
import { countThreads } from './threads/count-threads.ts';
import { createThread } from './threads/create-thread.ts';
import { deleteThread } from './threads/delete-thread.ts';
import { getThreadHistory, searchThreadHistory } from './threads/get-history.ts';
import { getThreadState, getThreadStateAt, getThreadStateOf } from './threads/get-state.ts';
import { getThread } from './threads/get-thread.ts';
import { patchThreadState } from './threads/patch-state.ts';
import { pruneThreads } from './threads/prune-threads.ts';
import { searchThreads } from './threads/search-threads.ts';
import { updateThreadState } from './threads/update-state.ts';
import { updateThread } from './threads/update-thread.ts';

/**
 * All operations of the agent server. A new operation must be added here and to the table of
 * `test/api/agent-server/tenancy.test.ts`.
 */
export const agentOperations: readonly Operation[] = [
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
  ...runOperations,
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
