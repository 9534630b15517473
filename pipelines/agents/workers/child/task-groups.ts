/**
 * Lets LangGraph execute the tasks of a large step in groups, so that such a step does not block the event loop.
 *
 * LangGraph races all unfinished tasks of a step again after the end of each task. The work grows with the square of the
 * number of tasks, and happens in one turn of the event loop if the tasks do not wait: four steps of 2,000 tasks blocked
 * a worker for 10 s.
 *
 *   1. The tasks of a large step are divided into groups. LangGraph executes each group as if it were a step, so that
 *      it races the tasks of a group only. All groups are executed at the same time. Each has a share of
 *      `max_concurrency`, if there is one.
 *   2. The results of all groups are merged in the order in which tasks end. A group continues when its last result has
 *      been taken, as LangGraph itself does.
 *   3. Between the starts of two groups, and between two results, the event loop turns if this is due.
 *
 * Risk: `_runLoop` and `_executeTasksWithRetry` are private, and each graph brings its own version of the library. If a
 * version does not have them, steps are executed as without this file, and `wide-graphs.test.ts` fails.
 */
import type { CompiledGraph } from '../../graphs/compiled-graph.ts';
import { EventLoopTurn } from './event-loop-turn.ts';

const groupSize = 50;
const turnMs = 20;

/** The part of LangGraph's PregelRunner that is replaced. Yields the result of each task. */
interface Runner {
  _executeTasksWithRetry?: ExecuteTasks;
}

type ExecuteTasks = (
  this: Runner,
  tasks: readonly unknown[],
  options?: { readonly maxConcurrency?: number },
) => AsyncGenerator<unknown>;

interface LoopingGraph extends CompiledGraph {
  _runLoop?: (params: { readonly runner?: Runner }) => Promise<unknown>;
}

const replacements = new WeakSet<ExecuteTasks>();
const turn = new EventLoopTurn(turnMs);

/** Executes the tasks of large steps of the graph, and of all graphs of the same copy of the library, in groups. */
export function executeInGroups(graph: LoopingGraph): void {
  const runLoop = graph._runLoop;
  if (typeof runLoop !== 'function') return;
  graph._runLoop = (params) => {
    delete graph._runLoop;
    if (params?.runner !== undefined) replaceExecution(Object.getPrototypeOf(params.runner));
    return runLoop.call(graph, params);
  };
}

function replaceExecution(prototype: Runner): void {
  const execute = prototype._executeTasksWithRetry;
  if (typeof execute !== 'function' || replacements.has(execute)) return;
  const replacement: ExecuteTasks = function (tasks, options) {
    const concurrency = Math.min(options?.maxConcurrency ?? Number.POSITIVE_INFINITY, tasks.length);
    return concurrency > groupSize
      ? mergeGroups(divideIntoGroups(tasks, concurrency), ({ tasks: some, maxConcurrency }) =>
          execute.call(this, some, { ...options, maxConcurrency }),
        )
      : execute.call(this, tasks, options);
  };
  replacements.add(replacement);
  prototype._executeTasksWithRetry = replacement;
}

interface TaskGroup {
  readonly tasks: unknown[];
  /** Never 1: LangGraph then executes only the first task. */
  maxConcurrency: number;
}

/** Divides tasks so that the first `concurrency` of them, which LangGraph would start first, are the first of all groups. */
function divideIntoGroups(tasks: readonly unknown[], concurrency: number): TaskGroup[] {
  const count = Math.ceil(concurrency / groupSize);
  const groups = Array.from({ length: count }, (): TaskGroup => ({ tasks: [], maxConcurrency: 0 }));
  for (const [index, task] of tasks.entries()) {
    const group = groups[Math.floor(((index % concurrency) / concurrency) * count)]!;
    group.tasks.push(task);
    if (index < concurrency) group.maxConcurrency += 1;
  }
  return groups;
}

/** Executes all groups at the same time and yields their results. @throws the first error of a group, after all results. */
async function* mergeGroups(
  groups: readonly TaskGroup[],
  execute: (group: TaskGroup) => AsyncIterable<unknown>,
): AsyncGenerator<unknown> {
  const results: { readonly result: unknown; readonly onTaken: () => void }[] = [];
  let failure: { readonly reason: unknown } | undefined;
  let unfinished = 0;
  let wake: () => void = () => undefined;
  const collect = async (group: AsyncIterable<unknown>) => {
    unfinished += 1;
    try {
      for await (const result of group)
        await new Promise<void>((onTaken) => {
          results.push({ result, onTaken });
          wake();
        });
    } catch (reason) {
      failure ??= { reason };
    }
    unfinished -= 1;
    wake();
  };
  for (const group of groups) {
    void collect(execute(group));
    await turn.yieldIfDue();
  }
  for (;;) {
    const next = results.shift();
    if (next !== undefined) {
      yield next.result;
      next.onTaken();
      await turn.yieldIfDue();
    } else if (unfinished === 0) {
      if (failure !== undefined) throw failure.reason;
      return;
    } else
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
  }
}
