/** An assistant, with its field names on the wire. Source: SPEC 2.10; openapi/agent-server.json. */
import type { GraphConfig } from '../runs/run.ts';

export interface AssistantVersion {
  readonly assistant_id: string;
  readonly graph_id: string;
  readonly name: string;
  readonly description: string | null;
  readonly config: GraphConfig;
  readonly context: unknown;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly version: number;
  readonly created_at: string;
}

export interface Assistant extends AssistantVersion {
  readonly updated_at: string;
}
