/** A run and its parts, with their field names on the wire. Source: LangGraph Platform API, Run. */
import { isJsonObject } from '../../../infra/json/json-value.ts';

export const runStatuses = ['pending', 'running', 'success', 'error', 'timeout', 'interrupted'] as const;
export type RunStatus = (typeof runStatuses)[number];

export const multitaskStrategies = ['reject', 'enqueue', 'interrupt', 'rollback'] as const;
export type MultitaskStrategy = (typeof multitaskStrategies)[number];

export type CancelAction = 'interrupt' | 'rollback';

export type Durability = 'sync' | 'async' | 'exit';

export interface RunCommand {
  readonly update?: unknown;
  readonly resume?: unknown;
  readonly goto?: unknown;
}

/** Returns the ids of the interrupts that a resume value answers by id; empty if it is a single answer. Source: LangGraph. */
export function listAnsweredInterrupts(resume: unknown): readonly string[] {
  if (!isJsonObject(resume)) return [];
  const names = Object.keys(resume);
  return names.every((name) => /^[0-9a-f]{32}$/.test(name)) ? names : [];
}

/** Config of a run or an assistant, in the form of LangChain's RunnableConfig. */
export interface GraphConfig {
  readonly tags?: readonly string[];
  readonly recursion_limit?: number;
  readonly configurable?: Readonly<Record<string, unknown>>;
  readonly [key: string]: unknown;
}

export interface RunIds {
  readonly deploymentId: string;
  readonly threadId: string;
  readonly runId: string;
}

/** The checkpoint that a run starts from, or that a state query reads. */
export interface CheckpointReference {
  readonly checkpoint_id?: string;
  readonly checkpoint_ns?: string;
  readonly checkpoint_map?: Readonly<Record<string, string>>;
}

/** The arguments of a run, as stored and as sent to clients. */
export interface RunKwargs {
  readonly input?: unknown;
  readonly command?: RunCommand;
  /** Merged config of assistant and request; `configurable` also contains copied headers and fields of the server. */
  readonly config: GraphConfig;
  readonly context?: unknown;
  readonly stream_mode: readonly string[];
  readonly subgraphs: boolean;
  readonly resumable: boolean;
  readonly interrupt_before?: '*' | readonly string[];
  readonly interrupt_after?: '*' | readonly string[];
  readonly checkpoint?: CheckpointReference;
  readonly durability: Durability;
  readonly webhook?: string;
  readonly feedback_keys?: readonly string[];
  readonly temporary: boolean;
  /** Project of the trace. Default: the name of the graph. */
  readonly langsmith_tracer?: { readonly project_name?: string; readonly example_id?: string };
}

/** A run as stored. */
export interface Run {
  readonly run_id: string;
  readonly thread_id: string;
  readonly assistant_id: string;
  readonly created_at: string;
  readonly updated_at: string;
  readonly status: RunStatus;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly kwargs: RunKwargs;
  readonly multitask_strategy: MultitaskStrategy;
}
