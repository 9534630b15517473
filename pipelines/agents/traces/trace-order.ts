/** Tells a worker how to collect the child runs of one graph run. */
export interface TraceInstructions {
  /** `dotted_order` of the root run, which represents the graph run. All child runs are placed below it. */
  readonly root: string;
  /** Start time of the root run in microseconds since 1970. No child run begins earlier. */
  readonly rootMicros: number;
  /** Whether to include inputs and outputs. */
  readonly values: boolean;
  /** Whether to include the thread id; false for stateless runs, whose thread is internal. */
  readonly thread: boolean;
  /** Maximum number of child runs; further child runs are counted and dropped. */
  readonly maxRuns: number;
  /**
   * Maximum total length of the inputs and outputs of all child runs, in characters; further values are counted and
   * dropped.
   */
  readonly maxCharacters: number;
  /** Maximum size of one run in bytes; inputs or outputs that exceed their share of it are dropped. */
  readonly maxRunBytes: number;
}

/** One child run of a graph run, as JSON members without braces. */
export interface ChildRun {
  readonly kind: 'post' | 'patch';
  readonly runId: string;
  /** Members with ids and `dotted_order`. */
  readonly location: string;
  readonly members: string;
  /** Members with inputs and outputs. The text is empty or starts with a comma. */
  readonly values: string;
  /** Whether the run is still in progress. */
  readonly open: boolean;
}

/** Numbers of runs and values that were dropped because of limits. */
export interface TraceMarks {
  readonly droppedRuns: number;
  readonly droppedValues: number;
}

/** A batch of child runs. The numbers of dropped runs and values cover the whole attempt so far. */
export interface ChildRunBatch extends TraceMarks {
  readonly runs: readonly ChildRun[];
}
