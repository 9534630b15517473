import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { requireWithin } from '../../../infra/postgres/page-within.ts';
import { buildThreadKey } from '../checkpoints/copy-checkpoints.ts';
import { isLeaseLost } from '../checkpoints/leased-saver.ts';
import { type CompiledGraph, collectInterrupts, readSnapshot } from '../graphs/compiled-graph.ts';
import { type NodeCommand, readNodes, requireTargets } from '../graphs/graph-nodes.ts';
import type { LoadedGraph } from '../graphs/load-graph.ts';
import type { GraphConfig, RunCommand } from '../runs/run.ts';
import type { StoreFactory } from '../store/agent-store.ts';
import type { StoreConfig } from '../store/store-item.ts';
import { embedTexts } from '../store/write-items.ts';
import { selectStateFields, type ThreadCheckpoint, type ThreadState } from '../threads/thread.ts';
import { toGraphJson } from '../workers/child/graph-json.ts';
import { toLibraryCommand, toLibraryConfig } from '../workers/child/run-config.ts';
import { type SaverFactory, ThreadSaver } from '../workers/child/thread-saver.ts';
import type { GraphRequest } from '../workers/messages.ts';
import { readSchemas, readSubgraphSchemas } from './schemas.ts';
import { toCheckpoint, toThreadState } from './thread-state.ts';

export interface RequestDeps {
  readonly graphs: ReadonlyMap<string, LoadedGraph>;
  /** Reasons why graphs are unusable, by graph id. */
  readonly loadErrors: ReadonlyMap<string, string>;
  readonly saverFor: SaverFactory;
  readonly storeFor: StoreFactory;
  readonly config: StoreConfig;
}

/**
 * Answers a query in the worker. Resolves with JSON text.
 *
 * @throws GRAPH_NOT_FOUND, GRAPH_UNUSABLE, STORE_EMBEDDER_UNUSABLE, and errors of the graph.
 */
export async function handleQuery(request: GraphRequest, deps: RequestDeps): Promise<string> {
  if (request.kind === 'embed') return JSON.stringify(await embedTexts(deps.config, request.texts));
  const target = 'thread' in request ? request.thread : request;
  const config = toLibraryConfig(target.config as GraphConfig, {
    ...('thread' in request && { threadId: request.thread.threadId }),
    configurable: { graph_id: target.graphId },
  });
  const loaded = getGraph(target.graphId, deps);
  const graph = await loaded.instance(config);
  if ('thread' in request) {
    const { deploymentId, threadId, graphId } = request.thread;
    const threadKey = buildThreadKey(deploymentId, threadId);
    const lease = request.kind === 'update-state' ? { leaseToken: request.leaseToken, threadKey, graphId } : undefined;
    graph.checkpointer ??= new ThreadSaver(deps.saverFor(lease), deploymentId);
    graph.store ??= deps.storeFor(deploymentId);
    // A graph with `checkpointer: false` has no stored state.
    if (graph.checkpointer === false) return toGraphJson(request.kind === 'history' ? [] : null);
  }
  switch (request.kind) {
    case 'state':
      return toGraphJson(await readState(graph, config, request));
    case 'history':
      return readHistory(graph, config, request);
    case 'update-state':
      return toGraphJson(await updateState(graph, config, request));
    case 'schemas':
      return toGraphJson({ graph_id: request.graphId, ...(await readSchemas(graph, loaded.path)) });
    case 'subgraphs':
      return toGraphJson(await readSubgraphSchemas(graph, loaded.path, request));
    case 'drawing':
      return toGraphJson((await graph.getGraphAsync({ ...config, xray: request.xray })).toJSON());
  }
}

function getGraph(graphId: string, { graphs, loadErrors }: RequestDeps): LoadedGraph {
  const loaded = graphs.get(graphId);
  if (loaded !== undefined) return loaded;
  const reason = loadErrors.get(graphId);
  if (reason === undefined)
    throw runlakeError('GRAPH_NOT_FOUND', { graph: graphId, graphs: [...graphs.keys()].join(', ') });
  throw runlakeError('GRAPH_UNUSABLE', { graph: graphId, reason });
}

type StateRequest = Extract<GraphRequest, { kind: 'state' }>;

/**
 * Reads the state of a thread at its head or at a checkpoint; the state of a new thread is empty. @throws
 * CHECKPOINT_NOT_FOUND
 */
async function readState(
  graph: CompiledGraph,
  config: ReturnType<typeof toLibraryConfig>,
  { thread, checkpoint, subgraphs, select }: StateRequest,
): Promise<Partial<ThreadState>> {
  const at = toLibraryConfig(config, { ...(checkpoint && { checkpoint }), configurable: config.configurable });
  const snapshot = await readSnapshot(graph, at, { subgraphs });
  if (checkpoint?.checkpoint_id !== undefined && snapshot.createdAt === undefined) {
    throw runlakeError('CHECKPOINT_NOT_FOUND', { thread: thread.threadId, checkpoint: checkpoint.checkpoint_id });
  }
  const state = toThreadState(snapshot);
  // Without a stored state there is no checkpoint to return.
  const known = snapshot.createdAt === undefined ? { ...state, checkpoint: null, metadata: {} } : state;
  return selectStateFields(known, select);
}

type HistoryRequest = Extract<GraphRequest, { kind: 'history' }>;

/**
 * Returns the states of a thread, or of the subgraph `checkpoint.checkpoint_ns`, newest first, as JSON text. @throws
 * ANSWER_TOO_LARGE
 */
async function readHistory(
  graph: CompiledGraph,
  config: ReturnType<typeof toLibraryConfig>,
  { limit, before, checkpoint, metadata, select, limitBytes = Number.MAX_SAFE_INTEGER }: HistoryRequest,
): Promise<string> {
  const toConfig = (choice: HistoryRequest['checkpoint']) =>
    toLibraryConfig(config, { ...(choice && { checkpoint: choice }), configurable: config.configurable });
  const states: string[] = [];
  let bytes = 0;
  const options = { limit, ...(before && { before: toConfig(before) }), ...(metadata && { filter: metadata }) };
  for await (const snapshot of graph.getStateHistory(toConfig(checkpoint), options)) {
    const state = toGraphJson(selectStateFields(toThreadState(snapshot), select));
    bytes += Buffer.byteLength(state);
    requireWithin(states.push(state), bytes, limitBytes);
    if (states.length === limit) break;
  }
  return `[${states.join(',')}]`;
}

type UpdateRequest = Extract<GraphRequest, { kind: 'update-state' }>;

/** Result of a state update: the new checkpoint, and the state and interrupts for the row of the thread. */
export interface UpdatedState {
  readonly checkpoint: ThreadCheckpoint | null;
  readonly state: ThreadState;
  /** Open interrupts by task id. */
  readonly interrupts: object;
}

const callerErrorNames = new Set(['InvalidUpdateError', 'EmptyInputError', 'EmptyChannelError']);

/**
 * Writes state updates (one or more supersteps) at the head of a thread or at a checkpoint.
 *
 * @throws STATE_UPDATE_INVALID, GRAPH_NODE_UNKNOWN, THREAD_BUSY if the lease was lost, and errors of the graph.
 */
async function updateState(
  graph: CompiledGraph,
  config: ReturnType<typeof toLibraryConfig>,
  { thread, checkpoint, updates }: UpdateRequest,
): Promise<UpdatedState> {
  const at = toLibraryConfig(config, { ...(checkpoint && { checkpoint }), configurable: config.configurable });
  const nodes = readNodes(graph);
  for (const { command } of updates.flat()) {
    if (nodes !== undefined) requireTargets(thread.graphId, nodes, command as NodeCommand);
  }
  const supersteps = updates.map((step) => ({
    updates: step.map(({ values, command, as_node }) => ({
      values: command === undefined || command === null ? (values ?? null) : toLibraryCommand(command as RunCommand),
      ...(as_node !== undefined && as_node !== null && { asNode: as_node }),
    })),
  }));
  try {
    const location = await graph.bulkUpdateState(at, supersteps);
    const head = await readSnapshot(graph, { configurable: { thread_id: thread.threadId } });
    return { checkpoint: toCheckpoint(location), state: toThreadState(head), interrupts: collectInterrupts(head) };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    if (isLeaseLost(error)) {
      throw runlakeError('THREAD_BUSY', { thread: thread.threadId });
    }
    if (
      callerErrorNames.has(error.name) ||
      /^Node ".*" does not exist|^No (supersteps|updates) provided|^Subgraph "/.test(error.message)
    ) {
      throw runlakeError('STATE_UPDATE_INVALID', { reason: error.message.replace(/\.?\s*$/, '') });
    }
    throw error;
  }
}
