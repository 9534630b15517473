import { dropNullish } from '../../../infra/collections/drop-nullish.ts';
import { type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { isJsonObject, toJsonObject } from '../../../infra/json/json-value.ts';
import type { Assistant } from '../assistants/assistant.ts';
import type { AgentUser } from '../auth/agent-user.ts';
import { type ConfigurableHeaders, toHeaderPatterns } from '../graphs/http-settings.ts';
import type { Thread } from '../threads/thread.ts';
import type { WebhookRules } from '../webhooks/webhook-rules.ts';
import type { CheckpointReference, Durability, GraphConfig, MultitaskStrategy, RunCommand, RunKwargs } from './run.ts';

/** Headers with longer names are not copied. */
const maxNameLength = 200;

/**
 * LangGraph reads these keys of `configurable` as the checkpoint to start from, which only the request body may set.
 */
const checkpointKeys = new Set(['checkpoint_id', 'checkpoint_ns', 'checkpoint_map']);

export type HeaderRule = (name: string) => boolean;

/** Headers with API keys, or with the tenant that a key is used for. */
const apiKeyHeaders = new Set(['x-api-key', 'x-tenant-id', 'x-service-key']);
/** Headers that contain keys or sessions. Patterns do not match them; `includes` must contain their full names. */
const confidentialHeaders = new Set([...apiKeyHeaders, 'authorization', 'proxy-authorization', 'cookie']);
/** Words that mark other headers as confidential, as in `x-amz-security-token`. */
const secretWordPattern =
  /(?:^|-)(?:api-?key|key|token|jwt|secret|password|auth|authorization|credentials?|cookie|session|signature)(?:-|$)/;
const isConfidential = (name: string) => confidentialHeaders.has(name) || secretWordPattern.test(name);

/**
 * Returns a function that tests whether the server copies a request header to `configurable` of a run. The server
 * copies headers that match `includes` of `http.configurable_headers`, unless they match `excludes`. If `includes` is
 * empty, it copies only `user-agent`. By default, the reference server copies all `x-*` headers. Runlake does not,
 * because runs are stored and readable, and proxies and clients put tokens, addresses and user names into such headers.
 */
export function createHeaderRule(choice?: ConfigurableHeaders | null): HeaderRule {
  const { includes, excludes } = toHeaderPatterns(choice);
  const isExcluded = compilePatterns(excludes);
  const isIncluded = compilePatterns(includes.length === 0 ? ['user-agent'] : includes);
  return (name) =>
    name.length <= maxNameLength &&
    !checkpointKeys.has(name) &&
    !isExcluded(name) &&
    (isConfidential(name) ? includes.includes(name) : isIncluded(name));
}

/** Returns the headers that are copied to the run, with lists of values joined by commas. */
function selectCopiedHeaders(
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
  isCopied: HeaderRule,
): Record<string, string> {
  const copiedHeaders = Object.entries(headers).filter(([name, value]) => value !== undefined && isCopied(name));
  return Object.fromEntries(copiedHeaders.map(([name, value]) => [name, String(value)]));
}

function compilePatterns(patterns: readonly string[]): HeaderRule {
  const splitPatterns = patterns.map((pattern) => pattern.split('*'));
  return (name) => splitPatterns.some((parts) => matchesPattern(name, parts));
}

/**
 * Returns true if a name consists of the parts of a pattern, with any text in place of each `*`. Takes linear time: the
 * project may be untrusted, and anyone can send a name that a regular expression takes hours to refuse.
 */
function matchesPattern(name: string, [first = '', ...others]: readonly string[]): boolean {
  const last = others.pop();
  if (last === undefined) return name === first;
  const end = name.length - last.length;
  if (end < first.length || !name.startsWith(first) || !name.endsWith(last)) return false;
  let at = first.length;
  for (const part of others) {
    const found = name.indexOf(part, at);
    if (found < 0 || found + part.length > end) return false;
    at = found + part.length;
  }
  return true;
}

type Nullish<T> = T | null | undefined;
type RunMetadata = Readonly<Record<string, unknown>>;

/**
 * The request for a run, with its field names on the wire. Except for `input`, null means the same as an absent field.
 */
export interface RunRequest {
  readonly assistant_id: string;
  readonly input?: unknown;
  readonly command?: Nullish<RunCommand>;
  readonly config?: Nullish<GraphConfig>;
  readonly context?: unknown;
  readonly metadata?: Nullish<Readonly<Record<string, unknown>>>;
  readonly stream_mode?: Nullish<string | readonly string[]>;
  readonly stream_subgraphs?: Nullish<boolean>;
  readonly stream_resumable?: Nullish<boolean>;
  readonly feedback_keys?: Nullish<readonly string[]>;
  readonly interrupt_before?: Nullish<string | readonly string[]>;
  readonly interrupt_after?: Nullish<string | readonly string[]>;
  readonly checkpoint?: Nullish<{ readonly [Key in keyof CheckpointReference]?: Nullish<CheckpointReference[Key]> }>;
  readonly checkpoint_id?: Nullish<string>;
  readonly webhook?: Nullish<string>;
  readonly multitask_strategy?: Nullish<MultitaskStrategy>;
  readonly on_disconnect?: Nullish<'cancel' | 'continue'>;
  readonly on_completion?: Nullish<'delete' | 'keep'>;
  readonly after_seconds?: Nullish<number>;
  readonly if_not_exists?: Nullish<'create' | 'reject'>;
  readonly durability?: Nullish<Durability>;
  readonly checkpoint_during?: Nullish<boolean>;
  readonly langsmith_tracer?: Nullish<{
    readonly project_name?: Nullish<string>;
    readonly example_id?: Nullish<string>;
  }>;
}

/** What a deployment allows and sets for its runs. */
export interface RunRules {
  /** Selects the headers of a request that are copied to its run. */
  readonly copiesHeader: HeaderRule;
  readonly webhooks: Pick<WebhookRules, 'check'>;
  /** Whether the server has a public address for feedback links. If false, requests with `feedback_keys` are refused. */
  readonly acceptsFeedbackKeys: boolean;
  /** Tracing project of runs whose request names none. Unset: the project with the name of the graph. */
  readonly project?: string | undefined;
}

/** The context of a run request: what the server adds to the fields that the client sends. */
interface RunOrigin {
  readonly assistant: Assistant;
  /** The thread as it was before the run; undefined if the thread is created for the run. */
  readonly thread?: Pick<Thread, 'metadata' | 'config'> | undefined;
  readonly runId: string;
  readonly threadId: string;
  /** Whether the thread is created for this run alone. */
  readonly stateless: boolean;
  readonly userId: string;
  /** The user according to custom authentication. Default: the user of the API key. */
  readonly user?: AgentUser | undefined;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly rules: RunRules;
}

/** Supported values of `stream_mode`. Source: `@langchain/langgraph-sdk`, `StreamMode`. */
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

/** Validates a request and fills in defaults. @throws FIELD_NOT_BUILT, WEBHOOK_INVALID, FEEDBACK_ADDRESS_UNSET */
export function readRunRequest(request: RunRequest, origin: RunOrigin) {
  const { stateless, rules } = origin;
  // Only a thread that was created for the run can be deleted with the run.
  if (!stateless && request.on_completion === 'delete') throw createUnsupportedFieldError('on_completion');
  if (request.feedback_keys?.length && !rules.acceptsFeedbackKeys) throw runlakeError('FEEDBACK_ADDRESS_UNSET');
  if (request.webhook) rules.webhooks.check(request.webhook);
  const temporary = stateless && (request.on_completion ?? 'delete') === 'delete';
  const metadata = mergeMetadata(request, origin);
  return {
    kwargs: buildKwargs(request, origin, metadata, temporary),
    metadata,
    threadMetadata: request.metadata ?? {},
    threadConfig: temporary ? undefined : buildThreadConfig(request.config, origin),
    multitaskStrategy: request.multitask_strategy ?? 'enqueue',
    ifNotExists: request.if_not_exists ?? 'reject',
    cancelOnDisconnect: request.on_disconnect === 'cancel',
    afterSeconds: request.after_seconds ?? 0,
    temporary,
  } as const;
}

/** Merges the metadata of assistant, thread and request, in order of increasing precedence. */
function mergeMetadata({ metadata }: RunRequest, { assistant, thread }: RunOrigin): RunMetadata {
  const { graph_id, assistant_id } = assistant;
  return { ...assistant.metadata, ...thread?.metadata, ...metadata, graph_id, assistant_id };
}

function buildKwargs(request: RunRequest, origin: RunOrigin, metadata: RunMetadata, temporary: boolean): RunKwargs {
  const { command, interrupt_before: before, interrupt_after: after, langsmith_tracer: tracer } = request;
  const { config, checkpoint: configured } = buildConfig(request, origin, metadata);
  const checkpoint = {
    ...configured,
    ...dropNullish(request.checkpoint),
    ...dropNullish({ checkpoint_id: request.checkpoint_id }),
  };
  const context = mergeContext(origin.assistant.context, request.context);
  const { project } = origin.rules;
  return {
    ...(request.input !== undefined && { input: request.input }),
    ...(command && { command }),
    config,
    ...(context !== undefined && { context }),
    stream_mode: parseModes(request.stream_mode),
    subgraphs: request.stream_subgraphs ?? false,
    resumable: request.stream_resumable ?? false,
    ...(before && { interrupt_before: parseNodes(before) }),
    ...(after && { interrupt_after: parseNodes(after) }),
    ...(Object.keys(checkpoint).length > 0 && { checkpoint }),
    durability: parseDurability(request),
    ...dropNullish({ webhook: request.webhook }),
    ...(request.feedback_keys?.length && { feedback_keys: [...new Set(request.feedback_keys)] }),
    temporary,
    ...((tracer || project !== undefined) && {
      langsmith_tracer: { ...(project !== undefined && { project_name: project }), ...dropNullish(tracer) },
    }),
  };
}

/**
 * Merges the config of the request over that of the assistant. Returns checkpoint fields of `configurable` separately,
 * because the server sets them. Clients can choose `user_id`, for graphs that key memory by it (precedence: request,
 * thread, assistant, sender). `langgraph_auth_user_id` identifies the sender; requests cannot set it.
 */
function buildConfig({ config: requested }: RunRequest, origin: RunOrigin, metadata: RunMetadata) {
  const { assistant, thread, runId, threadId, userId, headers } = origin;
  const user = origin.user ?? { identity: userId, display_name: userId, is_authenticated: true, permissions: [] };
  const { checkpoint_id, checkpoint_ns, checkpoint_map, ...configurable } = {
    ...assistant.config.configurable,
    ...requested?.configurable,
  };
  const tags = [...new Set([...(assistant.config.tags ?? []), ...(requested?.tags ?? [])])];
  const config: GraphConfig = {
    ...assistant.config,
    ...dropNullish(requested),
    ...(tags.length > 0 && { tags }),
    metadata: { ...toJsonObject(assistant.config.metadata), ...toJsonObject(requested?.metadata), ...metadata },
    configurable: {
      ...configurable,
      ...selectCopiedHeaders(headers, origin.rules.copiesHeader),
      run_id: runId,
      thread_id: threadId,
      graph_id: assistant.graph_id,
      assistant_id: assistant.assistant_id,
      user_id: chooseUserId(requested, thread?.config, assistant.config) ?? user.identity,
      langgraph_auth_user_id: user.identity,
      langgraph_auth_user: user,
      langgraph_auth_permissions: user.permissions,
    },
  };
  const checkpoint =
    typeof checkpoint_id === 'string' ? dropNullish({ checkpoint_id, checkpoint_ns, checkpoint_map }) : {};
  return { config, checkpoint: checkpoint as CheckpointReference };
}

/** Keys of `configurable` that only the server may set, or that identify a checkpoint. */
const serverOnlyKeys = new Set([
  ...['run_id', 'thread_id', 'graph_id', 'assistant_id', ...checkpointKeys],
  ...['langgraph_auth_user_id', 'langgraph_auth_user', 'langgraph_auth_permissions'],
]);

/**
 * Returns the config that the thread of a run gets: the config of the assistant, overridden by the request, without
 * server-only keys. Keeps the `user_id` of the thread unless the request sets a new one. Returns undefined if neither
 * the assistant nor the request has a config.
 */
function buildThreadConfig(requested: RunRequest['config'], { assistant, thread }: RunOrigin): GraphConfig | undefined {
  const { configurable: _, ...rest } = { ...assistant.config, ...requested };
  if (Object.keys({ ...assistant.config, ...requested }).length === 0) return undefined;
  const user_id = chooseUserId(requested, thread?.config, assistant.config);
  const all = Object.entries({
    ...assistant.config.configurable,
    ...requested?.configurable,
    ...(user_id !== undefined && { user_id }),
  });
  const configurable = Object.fromEntries(all.filter(([name]) => !serverOnlyKeys.has(name)));
  const config = { ...rest, ...(Object.keys(configurable).length > 0 && { configurable }) };
  return Object.keys(config).length === 0 ? undefined : config;
}

/** Returns the first `user_id` that is set in `configs`. */
function chooseUserId(...configs: readonly Nullish<Readonly<Record<string, unknown>>>[]): unknown {
  for (const config of configs) {
    const { user_id } = toJsonObject(config?.configurable);
    if (user_id !== undefined && user_id !== null) return user_id;
  }
  return undefined;
}

/**
 * Merges the contexts if both are objects; otherwise the requested context takes precedence. Returns undefined if
 * neither context is set.
 */
function mergeContext(assistantContext: unknown, requested: unknown): unknown {
  const isEmpty = isJsonObject(assistantContext) && Object.keys(assistantContext).length === 0;
  if (requested === undefined || requested === null) return isEmpty ? undefined : (assistantContext ?? undefined);
  return isJsonObject(assistantContext) && isJsonObject(requested) ? { ...assistantContext, ...requested } : requested;
}

function parseModes(requested: RunRequest['stream_mode']): readonly string[] {
  const modes = typeof requested === 'string' ? [requested] : (requested ?? []);
  return modes.length === 0 ? ['values'] : [...new Set(modes)];
}

function parseNodes(requested: string | readonly string[]): '*' | readonly string[] {
  if (typeof requested !== 'string') return requested.includes('*') ? '*' : requested;
  return requested === '*' ? requested : [requested];
}

/** `checkpoint_during` is the deprecated form of `durability`. */
function parseDurability({ durability, checkpoint_during: during }: RunRequest): Durability {
  return durability ?? (during === false ? 'exit' : 'async');
}

function createUnsupportedFieldError(field: string): RunlakeError {
  const { message } = runlakeError('FIELD_NOT_BUILT', { field });
  const fields = [{ loc: ['body', field], msg: message, type: 'field_not_built' }];
  return runlakeError('FIELD_NOT_BUILT', { field }, { fields });
}
