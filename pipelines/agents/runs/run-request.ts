import { fault } from '../../../infra/errors/runlake-error.ts';
import type { Assistant } from '../assistants/assistant.ts';
import type { AgentUser } from '../auth/agent-user.ts';
import type { Thread } from '../threads/thread.ts';
import type { WebhookRules } from '../webhooks/webhook-rules.ts';
import { copiedHeaders, type HeaderRule, headerRule } from './copied-headers.ts';
import type { CheckpointChoice, Durability, GraphConfig, MultitaskStrategy, RunCommand, RunKwargs } from './run.ts';

type Given<T> = T | null | undefined;
type RunMetadata = Readonly<Record<string, unknown>>;

/** A run as a client asks for it, with the names on the wire; null and left out mean the same, but for `input`. */
export interface RunRequest {
  readonly assistant_id: string;
  readonly input?: unknown;
  readonly command?: Given<RunCommand>;
  readonly config?: Given<GraphConfig>;
  readonly context?: unknown;
  readonly metadata?: Given<Readonly<Record<string, unknown>>>;
  readonly stream_mode?: Given<string | readonly string[]>;
  readonly stream_subgraphs?: Given<boolean>;
  readonly stream_resumable?: Given<boolean>;
  readonly feedback_keys?: Given<readonly string[]>;
  readonly interrupt_before?: Given<string | readonly string[]>;
  readonly interrupt_after?: Given<string | readonly string[]>;
  readonly checkpoint?: Given<{ readonly [Key in keyof CheckpointChoice]?: Given<CheckpointChoice[Key]> }>;
  readonly checkpoint_id?: Given<string>;
  readonly webhook?: Given<string>;
  readonly multitask_strategy?: Given<MultitaskStrategy>;
  readonly on_disconnect?: Given<'cancel' | 'continue'>;
  readonly on_completion?: Given<'delete' | 'keep'>;
  readonly after_seconds?: Given<number>;
  readonly if_not_exists?: Given<'create' | 'reject'>;
  readonly durability?: Given<Durability>;
  readonly checkpoint_during?: Given<boolean>;
  readonly langsmith_tracer?: Given<{ readonly project_name?: Given<string>; readonly example_id?: Given<string> }>;
}

/** Who and what a run is of, beside what is asked. */
export interface RunOrigin {
  readonly assistant: Assistant;
  /** The thread as it is before the run. Undefined: it is made for the run. */
  readonly thread?: Pick<Thread, 'metadata' | 'config'> | undefined;
  readonly runId: string;
  readonly threadId: string;
  /** Whether the thread is made for this run alone. */
  readonly stateless: boolean;
  readonly userId: string;
  /** Who a project's own authentication says it is; default: the user of the API key. */
  readonly user?: AgentUser | undefined;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** Which of them the run gets. Default: that of {@link headerRule}. */
  readonly copiesHeader?: HeaderRule | undefined;
  /** Which webhooks there may be. Undefined: nothing would call one. */
  readonly webhooks?: Pick<WebhookRules, 'check'> | undefined;
  /** Whether there is a public address under which feedback can be left. Default: no, so that it is refused. */
  readonly takesFeedback?: boolean | undefined;
}

/** Modes that can be asked for. Source: SPEC 6; `@langchain/langgraph-sdk`, `StreamMode`. */
export const streamModes = [
  'values',
  'updates',
  'messages-tuple',
  'messages',
  'debug',
  'custom',
  'events',
  'tasks',
  'checkpoints',
  'tools',
] as const;

const copiesUnlessTold = headerRule();

/** What a request comes to, with defaults filled in. @throws FIELD_NOT_BUILT, WEBHOOK_INVALID, FEEDBACK_ADDRESS_UNSET */
export function readRunRequest(request: RunRequest, origin: RunOrigin) {
  const { stateless, webhooks } = origin;
  // The thread is the caller's: it does not go with a run.
  if (!stateless && request.on_completion === 'delete') refuse('on_completion', request.on_completion);
  if (request.feedback_keys?.length && !origin.takesFeedback) throw fault('FEEDBACK_ADDRESS_UNSET');
  if (webhooks === undefined) refuse('webhook', request.webhook);
  else if (request.webhook) webhooks.check(request.webhook);
  const temporary = stateless && (request.on_completion ?? 'delete') === 'delete';
  const metadata = mergeMetadata(request, origin);
  return {
    kwargs: kwargsOf(request, origin, metadata, temporary),
    metadata,
    threadMetadata: request.metadata ?? {},
    multitaskStrategy: request.multitask_strategy ?? 'enqueue',
    ifNotExists: request.if_not_exists ?? 'reject',
    cancelOnDisconnect: request.on_disconnect === 'cancel',
    afterSeconds: request.after_seconds ?? 0,
    temporary,
  } as const;
}

/** Metadata of a run: that of its assistant, with that of its thread over it, with that of the request over both. */
function mergeMetadata({ metadata }: RunRequest, { assistant, thread }: RunOrigin): RunMetadata {
  const { graph_id, assistant_id } = assistant;
  return { ...assistant.metadata, ...thread?.metadata, ...metadata, graph_id, assistant_id };
}

function kwargsOf(request: RunRequest, origin: RunOrigin, metadata: RunMetadata, temporary: boolean): RunKwargs {
  const { command, interrupt_before: before, interrupt_after: after, langsmith_tracer: tracer } = request;
  const { config, checkpoint: configured } = configOf(request, origin, metadata);
  const checkpoint = {
    ...configured,
    ...given(request.checkpoint),
    ...given({ checkpoint_id: request.checkpoint_id }),
  };
  const context = contextOf(origin.assistant.context, request.context);
  return {
    ...(request.input !== undefined && { input: request.input }),
    ...(command && { command }),
    config,
    ...(context !== undefined && { context }),
    stream_mode: modesOf(request.stream_mode),
    subgraphs: request.stream_subgraphs ?? false,
    resumable: request.stream_resumable ?? false,
    ...(before && { interrupt_before: nodesOf(before) }),
    ...(after && { interrupt_after: nodesOf(after) }),
    ...(Object.keys(checkpoint).length > 0 && { checkpoint }),
    durability: durabilityOf(request),
    ...given({ webhook: request.webhook }),
    ...(request.feedback_keys?.length && { feedback_keys: [...new Set(request.feedback_keys)] }),
    temporary,
    ...(tracer && { langsmith_tracer: given(tracer) }),
  };
}

/**
 * The assistant's config with the request's over it. A checkpoint named there is taken out: it is one field like that of the body,
 * and the server sets the rest of it. `user_id` is the client's to choose, for graphs that key memory by it; who sent the run is in
 * `langgraph_auth_user_id`, which no request can set. Order of precedence: request, thread, assistant, caller.
 */
function configOf({ config: asked }: RunRequest, origin: RunOrigin, metadata: RunMetadata) {
  const { assistant, thread, runId, threadId, userId, headers } = origin;
  const user = origin.user ?? { identity: userId, display_name: userId, is_authenticated: true, permissions: [] };
  const { checkpoint_id, checkpoint_ns, checkpoint_map, ...configurable } = {
    ...assistant.config.configurable,
    ...asked?.configurable,
  };
  const tags = [...new Set([...(assistant.config.tags ?? []), ...(asked?.tags ?? [])])];
  const config: GraphConfig = {
    ...assistant.config,
    ...given(asked),
    ...(tags.length > 0 && { tags }),
    metadata: { ...recordOf(assistant.config.metadata), ...recordOf(asked?.metadata), ...metadata },
    configurable: {
      ...configurable,
      ...copiedHeaders(headers, origin.copiesHeader ?? copiesUnlessTold),
      run_id: runId,
      thread_id: threadId,
      graph_id: assistant.graph_id,
      assistant_id: assistant.assistant_id,
      user_id: chosenUserId(asked, thread?.config, assistant.config) ?? user.identity,
      langgraph_auth_user_id: user.identity,
      langgraph_auth_user: user,
      langgraph_auth_permissions: user.permissions,
    },
  };
  const checkpoint = typeof checkpoint_id === 'string' ? given({ checkpoint_id, checkpoint_ns, checkpoint_map }) : {};
  return { config, checkpoint: checkpoint as CheckpointChoice };
}

/** The first `user_id` that one of `configs` chooses. */
export function chosenUserId(...configs: readonly Given<Readonly<Record<string, unknown>>>[]): unknown {
  for (const config of configs) {
    const { user_id } = recordOf(config?.configurable);
    if (user_id !== undefined && user_id !== null) return user_id;
  }
  return undefined;
}

/** Two objects are merged; anything else that is asked for replaces the assistant's. Undefined: neither gives any. */
function contextOf(ofAssistant: unknown, asked: unknown): unknown {
  const isNone = isRecord(ofAssistant) && Object.keys(ofAssistant).length === 0;
  if (asked === undefined || asked === null) return isNone ? undefined : (ofAssistant ?? undefined);
  return isRecord(ofAssistant) && isRecord(asked) ? { ...ofAssistant, ...asked } : asked;
}

function modesOf(asked: RunRequest['stream_mode']): readonly string[] {
  const modes = typeof asked === 'string' ? [asked] : (asked ?? []);
  return modes.length === 0 ? ['values'] : [...new Set(modes)];
}

function nodesOf(asked: string | readonly string[]): '*' | readonly string[] {
  if (typeof asked !== 'string') return asked.includes('*') ? '*' : asked;
  return asked === '*' ? asked : [asked];
}

/** `checkpoint_during` is the older form of `durability`. */
function durabilityOf({ durability, checkpoint_during: during }: RunRequest): Durability {
  return durability ?? (during === false ? 'exit' : 'async');
}

function refuse(field: string, value: unknown): void {
  if (value === undefined || value === null || (Array.isArray(value) && value.length === 0)) return;
  const error = fault('FIELD_NOT_BUILT', { field });
  const fields = [{ loc: ['body', field], msg: error.message, type: 'field_not_built' }];
  throw fault('FIELD_NOT_BUILT', { field }, { fields });
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> {
  return isRecord(value) ? value : {};
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function given<T extends object>(values: T | null | undefined): { [Key in keyof T]?: NonNullable<T[Key]> } {
  const entries = Object.entries(values ?? {}).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(entries) as { [Key in keyof T]?: NonNullable<T[Key]> };
}
