import type { CheckpointConfig, Snapshot, SnapshotTask } from '../graphs/compiled-graph.ts';
import type { Interrupt, ThreadCheckpoint, ThreadState, ThreadTask } from '../threads/thread.ts';

/** Converts a snapshot to the thread state of the API. Values are not serialised; use `toGraphJson` for that. */
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
    error: error === undefined || error === null ? null : formatError(error),
    interrupts: [...interrupts] as Interrupt[],
    checkpoint: state !== undefined && !('values' in state) ? toCheckpoint(state) : null,
    state: state !== undefined && 'values' in state ? toThreadState(state) : null,
    result: result ?? null,
  };
}

/** Converts a config to the checkpoint of the API; null if the config addresses no stored checkpoint. */
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

function formatError(error: unknown): string {
  if (typeof error === 'object' && error !== null && 'message' in error) return String(error.message);
  return typeof error === 'string' ? error : JSON.stringify(error);
}
