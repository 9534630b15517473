import { type CompiledGraph, readSnapshot, type Snapshot } from '../graphs/compiled-graph.ts';
import type { Interrupt } from '../threads/thread.ts';
import { graphJson } from './graph-json.ts';

export interface StateOfRun {
  readonly values: string;
  readonly next: readonly string[];
  readonly interrupts: Readonly<Record<string, readonly Interrupt[]>>;
}

/** Reads the state at the head of the thread from the checkpointer. @throws errors of the saver. */
export async function readStoredState(graph: CompiledGraph, threadId: string): Promise<StateOfRun> {
  const { values, next, tasks } = await readSnapshot(graph, { configurable: { thread_id: threadId } });
  return { values: graphJson(values ?? {}), next: [...next], interrupts: collectInterrupts({ tasks, next }) };
}

/**
 * Converts the last state that a graph without a checkpointer streamed to its final state. Its run cannot be resumed.
 */
export function toStreamedState(values: unknown): StateOfRun {
  return { values: graphJson(values ?? {}), next: [], interrupts: {} };
}

/**
 * Returns the open interrupts by task id, as plain JSON data. LangGraph also lists interrupts of tasks that were
 * resumed while other tasks of the step wait; this function excludes those interrupts.
 */
export function collectInterrupts({
  tasks,
  next,
}: Pick<Snapshot, 'tasks' | 'next'>): Record<string, readonly Interrupt[]> {
  const waiting = tasks.filter(
    ({ name, interrupts }) => interrupts !== undefined && interrupts.length > 0 && next.includes(name),
  );
  return Object.fromEntries(waiting.map((task) => [task.id, JSON.parse(graphJson(task.interrupts)) as Interrupt[]]));
}
