/** Instructions for a worker to collect the child runs of one graph run. */
export interface TraceOrder {
  /** `dotted_order` of the root, which is the graph run. All child runs are placed below it. */
  readonly root: string;
  /** Start of the root in microseconds since 1970. No child run begins before it. */
  readonly rootMicros: number;
  /** Whether to include inputs and outputs. */
  readonly values: boolean;
  /** Whether to include the thread id; false for stateless runs, whose thread is internal. */
  readonly thread: boolean;
  /** Maximum number of child runs; further child runs are counted and dropped. */
  readonly maxRuns: number;
  /** Maximum characters of inputs and outputs of all child runs; further values are counted and dropped. */
  readonly maxCharacters: number;
  /** Maximum bytes of one run; inputs or outputs that exceed their share are dropped. */
  readonly maxRunBytes: number;
}

/** One child run of a graph run, as JSON members without braces. */
export interface ChildRun {
  readonly kind: 'post' | 'patch';
  readonly runId: string;
  /** Members with ids and `dotted_order`. */
  readonly location: string;
  readonly members: string;
  /** Inputs and outputs: empty, or starting with a comma. */
  readonly values: string;
  /** Whether the run has not ended yet. */
  readonly open: boolean;
}

/** Number of runs and values that were dropped because of limits. */
export interface TraceMarks {
  readonly droppedRuns: number;
  readonly droppedValues: number;
}

/** A batch of child runs. The counts include the whole attempt so far. */
export interface ChildRunBatch extends TraceMarks {
  readonly runs: readonly ChildRun[];
}
