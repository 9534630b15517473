import type { Headers } from './stream-run.ts';

/** What is measured: a server that has the graph `burst`. */
export interface AgentServer {
  readonly url: string;
  readonly headers: Headers;
  /** Resident memory now of all its processes that are not engines, in MiB. */
  memoryMib(): number;
  end(): Promise<void>;
}
