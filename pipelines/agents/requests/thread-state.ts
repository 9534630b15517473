import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import {
  type CheckpointConfig,
  type CompiledGraph,
  readSnapshot,
  type Snapshot,
  type SnapshotTask,
} from '../graphs/compiled-graph.ts';
import { requireWithin } from '../page-within.ts';
import type { Interrupt, ThreadCheckpoint, ThreadState, ThreadTask } from '../threads/thread.ts';
import { selectedState } from '../threads/thread-state.ts';
import { graphJson } from '../workers/graph-json.ts';
import { toLibraryConfig } from '../workers/run-config.ts';
import type { GraphRequest } from '../workers/worker-pool.ts';

/** Converts a snapshot to the thread state of the API. Values are not serialised; use `graphJson` for that. */
export function toThreadState({
  values,
  next,
  tasks,
  config,
  parentConfig,
  metadata,
  createdAt,
}: Snapshot): ThreadState {
  return {
    values: values ?? {},
    next: [...next],
    tasks: tasks.map(toThreadTask),
    checkpoint: toCheckpoint(config),
    parent_checkpoint: toCheckpoint(parentConfig),
    metadata: metadata ?? {},
    created_at: createdAt ?? null,
    interrupts: tasks.flatMap((task) => [...(task.interrupts ?? [])] as Interrupt[]),
  };
}

function toThreadTask({ id, name, path, error, interrupts = [], result, state }: SnapshotTask): ThreadTask {
  return {
    id,
    name,
    ...(path !== undefined && { path }),
    error: error === undefined || error === null ? null : errorText(error),
    interrupts: [...interrupts] as Interrupt[],
    checkpoint: state !== undefined && !('values' in state) ? toCheckpoint(state) : null,
    state: state !== undefined && 'values' in state ? toThreadState(state) : null,
    result: result ?? null,
  };
}

/** Converts a config to the checkpoint of the API; null if it addresses no stored checkpoint. */
export function toCheckpoint(config: CheckpointConfig | undefined): ThreadCheckpoint | null {
  const { thread_id, checkpoint_id, checkpoint_ns = '', checkpoint_map } = config?.configurable ?? {};
  if (thread_id === undefined || (checkpoint_id === undefined && checkpoint_ns === '')) return null;
  return {
    thread_id,
    ...(checkpoint_id !== undefined && { checkpoint_id }),
    checkpoint_ns,
    ...(checkpoint_map !== undefined && { checkpoint_map }),
  };
}

function errorText(error: unknown): string {
  if (typeof error === 'object' && error !== null && 'message' in error) return String(error.message);
  return typeof error === 'string' ? error : JSON.stringify(error);
}

type StateRequest = Extract<GraphRequest, { kind: 'state' }>;

/**
 * Reads the state of a thread at its head or at a checkpoint; the state of a new thread is empty. @throws
 * CHECKPOINT_NOT_FOUND
 */
export async function readState(
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
  return selectedState(known, select);
}

type HistoryRequest = Extract<GraphRequest, { kind: 'history' }>;

/**
 * Returns the states of a thread, or of the subgraph `checkpoint.checkpoint_ns`, newest first, as JSON text. @throws
 * ANSWER_TOO_LARGE
 */
export async function readHistory(
  graph: CompiledGraph,
  config: ReturnType<typeof toLibraryConfig>,
  { limit, before, checkpoint, metadata, select, limitBytes = Number.MAX_SAFE_INTEGER }: HistoryRequest,
): Promise<string> {
  const configOf = (choice: HistoryRequest['checkpoint']) =>
    toLibraryConfig(config, { ...(choice && { checkpoint: choice }), configurable: config.configurable });
  const states: string[] = [];
  let bytes = 0;
  const options = { limit, ...(before && { before: configOf(before) }), ...(metadata && { filter: metadata }) };
  for await (const snapshot of graph.getStateHistory(configOf(checkpoint), options)) {
    const state = graphJson(selectedState(toThreadState(snapshot), select));
    bytes += Buffer.byteLength(state);
    requireWithin(states.push(state), bytes, limitBytes);
    if (states.length === limit) break;
  }
  return `[${states.join(',')}]`;
}
