/** What a worker is told to collect of the runs inside of one run of a graph, and what it hands over. */
export interface TraceOrder {
  /** `dotted_order` of the root, the run of the graph: everything is put below it. */
  readonly root: string;
  /** Start of the root, microseconds since 1970. Nothing inside is told to have begun before it. */
  readonly rootMicros: number;
  /** Whether inputs and outputs are kept. */
  readonly values: boolean;
  /** Whether clients know the thread: of a run without one it is not told. */
  readonly thread: boolean;
  /** Most runs; the rest is counted and left out. */
  readonly mostRuns: number;
  /** Characters of inputs and outputs of all together; what is beyond is counted and left out. */
  readonly mostCharacters: number;
  /** Bytes of one run; beyond, it goes without inputs and outputs. */
  readonly mostRunBytes: number;
}

/** One run inside of a run of a graph, as text of its members: JSON without the braces. */
export interface ChildRun {
  readonly kind: 'post' | 'patch';
  readonly runId: string;
  /** Ids and `dotted_order`. */
  readonly place: string;
  readonly members: string;
  /** Inputs and outputs; empty, or with a comma before. */
  readonly values: string;
  /** It goes on. */
  readonly open: boolean;
}

/** What was left out for the limits. */
export interface TraceMarks {
  readonly droppedRuns: number;
  readonly droppedValues: number;
}

/** The marks are of the attempt so far. */
export interface TracedRuns extends TraceMarks {
  readonly runs: readonly ChildRun[];
}
