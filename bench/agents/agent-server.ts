import type { Headers } from './stream-run.ts';

/** A measured server with the graph `burst`. */
export interface MeasuredServer {
  readonly url: string;
  readonly headers: Headers;
  /** Current resident memory of all its processes except engines, in MiB. */
  memoryMib(): number;
}

export interface AgentServer extends MeasuredServer {
  end(): Promise<void>;
}
