import type { Headers } from './stream-run.ts';

/** A measured server with the graph `burst`. */
export interface AgentServer {
  readonly url: string;
  readonly headers: Headers;
  /** Current resident memory of all its processes except engines, in MiB. */
  memoryMib(): number;
  end(): Promise<void>;
}
