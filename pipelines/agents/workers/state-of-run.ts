import type { CompiledGraph, Snapshot } from '../graphs/compiled-graph.ts';
import { readSnapshot } from '../graphs/read-snapshot.ts';
import type { Interrupt } from '../threads/thread.ts';
import { graphJson } from './graph-json.ts';

export interface StateOfRun {
  readonly values: string;
  readonly next: readonly string[];
  readonly interrupts: Readonly<Record<string, readonly Interrupt[]>>;
}

/** The head of the thread as it is kept. @throws what the saver throws. */
export async function keptState(graph: CompiledGraph, threadId: string): Promise<StateOfRun> {
  const { values, next, tasks } = await readSnapshot(graph, { configurable: { thread_id: threadId } });
  return { values: graphJson(values ?? {}), next: [...next], interrupts: interruptsOf({ tasks, next }) };
}

/** The last state that the graph streamed, for one that keeps none. Nothing can be resumed then. */
export function streamedState(values: unknown): StateOfRun {
  return { values: graphJson(values ?? {}), next: [], interrupts: {} };
}

/**
 * By the id of the task that waits. The library also shows questions of tasks that have got their answer, while others of the step wait.
 * Plain data, for it leaves this process as it is.
 */
export function interruptsOf({ tasks, next }: Pick<Snapshot, 'tasks' | 'next'>): Record<string, readonly Interrupt[]> {
  const waiting = tasks.filter(
    ({ name, interrupts }) => interrupts !== undefined && interrupts.length > 0 && next.includes(name),
  );
  return Object.fromEntries(waiting.map((task) => [task.id, JSON.parse(graphJson(task.interrupts)) as Interrupt[]]));
}
