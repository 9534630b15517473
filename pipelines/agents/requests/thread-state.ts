import type { GraphPlace, Snapshot, SnapshotTask } from '../graphs/compiled-graph.ts';
import type { Interrupt, ThreadCheckpoint, ThreadState, ThreadTask } from '../threads/thread.ts';

/** A state of a thread as clients see it. Values are as the graph has them: `graphJson` writes them. */
export function threadState({ values, next, tasks, config, parentConfig, metadata, createdAt }: Snapshot): ThreadState {
  return {
    values: values ?? {},
    next: [...next],
    tasks: tasks.map(threadTask),
    checkpoint: checkpointOf(config),
    parent_checkpoint: checkpointOf(parentConfig),
    metadata: metadata ?? {},
    created_at: createdAt ?? null,
    interrupts: tasks.flatMap((task) => [...(task.interrupts ?? [])] as Interrupt[]),
  };
}

function threadTask({ id, name, path, error, interrupts = [], result, state }: SnapshotTask): ThreadTask {
  return {
    id,
    name,
    ...(path !== undefined && { path }),
    error: error === undefined || error === null ? null : errorText(error),
    interrupts: [...interrupts] as Interrupt[],
    checkpoint: state !== undefined && !('values' in state) ? checkpointOf(state) : null,
    state: state !== undefined && 'values' in state ? threadState(state) : null,
    result: result ?? null,
  };
}

/** Null where nothing was kept. */
export function checkpointOf(place: GraphPlace | undefined): ThreadCheckpoint | null {
  const { thread_id, checkpoint_id, checkpoint_ns = '', checkpoint_map } = place?.configurable ?? {};
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
