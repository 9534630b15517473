/**
 * A reference model of what Runlake must store and count after a generated sequence of requests (a history):
 *
 * - the project and the time of a trace are those of its first accepted event that names a project; a post without a
 *   project names `default`; no event of the trace is stored until one names a project; - each value of a run is that
 *   of the last patch that sets it or, if no patch sets it, that of the last post; - a trace is counted once, in the
 *   hour of its time, for its project and for the sender of its first event.
 */
import type { Projects } from './projects.ts';

/** One post or patch. Values are JSON text by member of the run; an absent member is not set. */
export interface RunEvent {
  readonly kind: 'post' | 'patch';
  readonly workspace: number;
  readonly traceId: string;
  readonly runId: string;
  readonly parentId?: string | undefined;
  readonly dottedOrder?: string | undefined;
  /** Time of the last segment of dotted_order; the next field has that of the first segment. */
  readonly keyMicros: number;
  readonly traceMicros: number;
  readonly project?: ProjectReference | undefined;
  readonly values: Values;
}
export type Values = Readonly<Record<string, string>>;
export type ProjectReference = { readonly name: string } | { readonly id: string };

export interface RunState {
  readonly keyMicros: number;
  dottedOrder: string | undefined;
  parentId: string | undefined;
  post: Values;
  patch: Values;
}

export interface TraceState {
  readonly workspace: number;
  readonly traceId: string;
  readonly sender: number;
  readonly runs: Map<string, RunState>;
  project?: number;
  micros: number;
}

export class Model {
  readonly traces = new Map<string, TraceState>();
  readonly #projects: Projects;

  constructor(projects: Projects) {
    this.#projects = projects;
  }

  traceOf({ workspace, traceId }: Pick<RunEvent, 'workspace' | 'traceId'>): TraceState | undefined {
    return this.traces.get(`${workspace} ${traceId}`);
  }

  /** Applies one request of `sender`, with its events in the order of acceptance. */
  apply(sender: number, events: readonly RunEvent[]): void {
    for (const event of events) {
      const { workspace, traceId, runId, keyMicros } = event;
      const trace: TraceState = this.traceOf(event) ?? { workspace, traceId, sender, runs: new Map(), micros: 0 };
      this.traces.set(`${workspace} ${traceId}`, trace);
      const project = this.#projects.resolve(workspace, event.project, event.kind);
      if (trace.project === undefined && project !== undefined) {
        trace.project = project;
        trace.micros = event.traceMicros;
      }
      const run = trace.runs.get(runId) ?? {
        keyMicros,
        dottedOrder: undefined,
        parentId: undefined,
        post: {},
        patch: {},
      };
      trace.runs.set(runId, run);
      run[event.kind] = { ...run[event.kind], ...event.values };
      run.dottedOrder = event.dottedOrder ?? run.dottedOrder;
      run.parentId = event.parentId ?? run.parentId;
    }
  }
}
