import { type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { assistantIdOf } from '../../../pipelines/agents/assistants/assistant.ts';
import { bothOf, changesWith, metadataWith } from '../../../pipelines/agents/auth/access-filter.ts';
import type { AuthQuestion } from '../../../pipelines/agents/auth/agent-user.ts';
import { findThreadOfRun } from '../../../pipelines/agents/runs/read-run.ts';
import { Answer } from '../../server/operation.ts';
import { buildPage } from '../agent-schema.ts';
import { snakeCased } from '../runs/run-body.ts';
import { type Questions, toRecord } from './questions.ts';
import { storeRules } from './store-rules.ts';

type Values = Readonly<Record<string, unknown>>;
/** Input that is already validated against the schema of the operation. */
interface RuledInput {
  readonly params: Readonly<Record<string, string>>;
  readonly query: Values;
  readonly body: Values;
}

type Proceed = (changes?: { readonly query?: unknown; readonly body?: unknown }) => Promise<unknown>;

/**
 * Authorises an operation under custom authentication: runs checks, then calls `proceed` with the input, possibly
 * restricted. Resolves with the response.
 */
export type Rule = (input: RuledInput, ask: Questions, proceed: Proceed) => Promise<unknown>;

type Event = AuthQuestion['event'];

const readThreadId = ({ params }: RuledInput) => (params.thread_id as string).toLowerCase();
const noThread = (thread: string) => runlakeError('THREAD_NOT_FOUND', { thread });

const open: Rule = (_input, _ask, proceed) => proceed();

/** Checks access to the thread. A run is accessible if its thread is. */
const onThread =
  (event: Event, missing: (input: RuledInput) => RunlakeError = (input) => noThread(readThreadId(input))): Rule =>
  async (input, ask, proceed) => {
    const id = readThreadId(input);
    const { run_id } = input.params;
    const { action } = input.query ?? {};
    await ask.reach(
      event,
      id,
      { thread_id: id, ...(run_id && { run_id }), ...(action ? { action } : {}) },
      missing(input),
    );
    return proceed();
  };

const onRun = (event: Event): Rule =>
  onThread(event, ({ params }) => runlakeError('RUN_NOT_FOUND', { run: params.run_id as string }));

/** With `cancel_on_disconnect` a reader can stop the run, so that also needs `threads:update`. */
const joiningRun: Rule = async (input, ask, proceed) => {
  if (input.query.cancel_on_disconnect) await onRun('threads:update')(input, ask, async () => undefined);
  return onRun('threads:read')(input, ask, proceed);
};

/** A change of metadata. It always keeps the metadata that the handler requires, so the row stays accessible. */
const changing =
  (event: Event, idOf: (input: RuledInput) => string, missing: (id: string) => RunlakeError): Rule =>
  async (input, ask, proceed) => {
    const [kind] = event.split(':');
    const id = idOf(input);
    const value = { ...input.body, [`${kind?.slice(0, -1)}_id`]: id };
    const { required, value: answered } = await ask.reach(event, id, value, missing(id));
    const metadata = answered.metadata;
    if (metadata === undefined || metadata === null) return proceed();
    return proceed({ body: { ...input.body, metadata: changesWith(toRecord(metadata), required) } });
  };

const searching =
  (event: Event, nothing: (input: RuledInput) => unknown): Rule =>
  async (input, ask, proceed) => {
    const { required, value } = await ask.allow(event, { ...input.body, metadata: input.body.metadata ?? {} });
    const metadata = bothOf(toRecord(value.metadata), required ?? {});
    return metadata === undefined ? nothing(input) : proceed({ body: { ...input.body, metadata } });
  };

const emptyPage = () => buildPage([], { total: 0, offset: 0 });

const assistantIdIn = ({ params }: RuledInput) => assistantIdOf(params.assistant_id as string);
const noAssistant = (assistant: string) => runlakeError('ASSISTANT_NOT_FOUND', { assistant: assistant.slice(0, 100) });
const onAssistant =
  (event: Event): Rule =>
  async (input, ask, proceed) => {
    const id = assistantIdIn(input);
    await ask.reach(
      event,
      id,
      { assistant_id: id, ...toRecord(input.body) },
      noAssistant(input.params.assistant_id ?? id),
    );
    return proceed();
  };

/** The row must be accessible also if it existed before (`if_exists`). */
const creating =
  (event: 'threads:create' | 'assistants:create', exists: (id: string) => RunlakeError): Rule =>
  async (input, ask, proceed) => {
    const { required, value } = await ask.allow(event, { ...input.body, metadata: input.body.metadata ?? {} });
    const created = await proceed({
      body: { ...input.body, metadata: metadataWith(toRecord(value.metadata), required) },
    });
    const kind = event === 'threads:create' ? 'threads' : 'assistants';
    const id = toRecord(created)[kind === 'threads' ? 'thread_id' : 'assistant_id'] as string;
    if (!(await ask.holds(kind, id, required))) throw exists(id);
    return created;
  };

const running: Rule = async (input, ask, proceed) => {
  const threadId = input.params?.thread_id?.toLowerCase();
  const metadata = await ask.startRun(threadId, input.body as Values & { assistant_id: string });
  return proceed({ body: { ...input.body, metadata } });
};

const cronIdIn = ({ params }: RuledInput) => params.cron_id as string;
const noCron = (cron: string) => runlakeError('CRON_NOT_FOUND', { cron });
const onCron =
  (event: Event): Rule =>
  async (input, ask, proceed) => {
    const id = cronIdIn(input);
    await ask.reach(event, id, { cron_id: id }, noCron(id));
    return proceed();
  };

const makingCron: Rule = async (input, ask, proceed) => {
  const threadId = input.params?.thread_id?.toLowerCase();
  const { schedule, end_time, metadata, ...payload } = input.body;
  await ask.useAssistant(payload.assistant_id as string);
  if (threadId !== undefined) {
    const run = { thread_id: threadId, assistant_id: assistantIdOf(payload.assistant_id as string), kwargs: payload };
    await ask.reach('threads:create_run', threadId, { ...run, metadata: metadata ?? {} }, noThread(threadId));
  }
  const { required, value } = await ask.allow('crons:create', {
    schedule,
    payload,
    metadata: metadata ?? {},
    cron_id: null,
    thread_id: threadId ?? null,
    user_id: ask.deps.access.user.identity,
    end_time: end_time ?? null,
  });
  return proceed({ body: { ...input.body, metadata: metadataWith(toRecord(value.metadata), required) } });
};

/** Commands of the event-stream protocol that create a run. */
const startsRun = new Set<unknown>(['run.start', 'input.respond', 'state.fork']);

/** Rules by operation. An operation without a rule is refused under custom authentication. */
export const accessRules: Readonly<Record<string, Rule>> = {
  // Exists only if the operator enabled it, for tests.
  truncate: open,

  createAssistant: creating('assistants:create', (assistant) => runlakeError('ASSISTANT_EXISTS', { assistant })),
  searchAssistants: searching('assistants:search', emptyPage),
  countAssistants: searching('assistants:search', () => 0),
  getAssistant: onAssistant('assistants:read'),
  getAssistantGraph: onAssistant('assistants:read'),
  getAssistantSchemas: onAssistant('assistants:read'),
  getAssistantSubgraphs: onAssistant('assistants:read'),
  getAssistantSubgraph: onAssistant('assistants:read'),
  listAssistantVersions: onAssistant('assistants:read'),
  updateAssistant: changing('assistants:update', assistantIdIn, noAssistant),
  setAssistantVersion: onAssistant('assistants:update'),
  deleteAssistant: async (input, ask, proceed) => {
    const id = assistantIdIn(input);
    await ask.reach('assistants:delete', id, { assistant_id: id }, noAssistant(id));
    // Deleting an assistant deletes its runs on all threads.
    const { required } = await ask.allow('threads:delete', { thread_id: null });
    if (!(await ask.ownsThreadsOf(id, required))) {
      throw runlakeError('AUTH_FORBIDDEN', { reason: 'The assistant has runs on threads that you must not delete.' });
    }
    return proceed();
  },

  createThread: creating('threads:create', (thread) => runlakeError('THREAD_EXISTS', { thread })),
  searchThreads: searching('threads:search', emptyPage),
  countThreads: searching('threads:search', () => 0),
  pruneThreads: async (input, ask, proceed) => {
    const deletable: string[] = [];
    for (const id of input.body.thread_ids as readonly string[]) {
      const { required } = await ask.allow('threads:delete', { thread_id: id });
      if (await ask.holds('threads', id, required)) deletable.push(id);
    }
    return proceed({ body: { ...input.body, thread_ids: deletable } });
  },
  getThread: onThread('threads:read'),
  updateThread: changing('threads:update', readThreadId, noThread),
  patchThreadState: changing('threads:update', readThreadId, noThread),
  deleteThread: onThread('threads:delete'),
  copyThread: async (input, ask, proceed) => {
    await ask.allow('threads:create', { thread_id: null, metadata: {} });
    const missingSource = () => runlakeError('THREAD_TO_COPY_NOT_FOUND', { thread: readThreadId(input) });
    return onThread('threads:read', missingSource)(input, ask, proceed);
  },
  getThreadState: onThread('threads:read'),
  getThreadStateAt: onThread('threads:read'),
  getThreadStateOf: onThread('threads:read'),
  updateThreadState: onThread('threads:update'),
  getThreadHistory: onThread('threads:read'),
  searchThreadHistory: onThread('threads:read'),
  streamThread: onThread('threads:read'),

  createRun: running,
  streamRun: running,
  waitForRun: running,
  createStatelessRun: running,
  streamStatelessRun: running,
  waitForStatelessRun: running,
  createRunBatch: async (input, ask, proceed) => {
    const created: unknown[] = [];
    for (const each of input.body as unknown as Parameters<typeof snakeCased>[0][]) {
      const body = snakeCased(each);
      const metadata = await ask.startRun(undefined, { ...body });
      const answer = (await proceed({ body: [{ ...body, metadata }] })) as Answer;
      created.push(...(answer.body as unknown[]));
    }
    return new Answer({ body: created });
  },
  listRuns: onThread('threads:read'),
  getAgentRun: onRun('threads:read'),
  joinRun: joiningRun,
  joinRunStream: joiningRun,
  joinStatelessRunStream: async (input, ask, proceed) => {
    const runId = (input.params.run_id as string).toLowerCase();
    const threadId = await findThreadOfRun(ask.deps.database, ask.deps.deploymentId, runId);
    return joiningRun({ ...input, params: { thread_id: threadId, run_id: runId } }, ask, proceed);
  },
  deleteAgentRun: onRun('threads:delete'),
  cancelAgentRun: onRun('threads:update'),
  cancelAgentRuns: async (input, ask, proceed) => {
    const threadId = (input.body.thread_id as string | null | undefined)?.toLowerCase();
    const value = { thread_id: threadId ?? null, action: input.query.action ?? 'interrupt' };
    if (threadId !== undefined) await ask.reach('threads:update', threadId, value, noThread(threadId));
    else {
      const { required } = await ask.allow('threads:update', value);
      ask.deps.access.threads = { required, metadata: {} };
    }
    return proceed();
  },

  /** A command that starts a run is authorised as a run; any other needs read access to the thread, which must exist. */
  postThreadCommand: async (input, ask, proceed) => {
    const threadId = readThreadId(input);
    const { method, params } = toRecord(input.body);
    if (!startsRun.has(method)) return onThread('threads:read')(input, ask, proceed);
    const { assistant_id, ...asked } = toRecord(params);
    // Only `run.start` chooses its assistant; other commands continue with the assistant of the thread.
    const named = method === 'run.start' && typeof assistant_id === 'string';
    const started = named ? assistant_id : await ask.assistantOfThread(threadId);
    const metadata = await ask.startRun(threadId, { ...asked, assistant_id: started });
    const required = ask.deps.access.threads?.required;
    if ((await ask.exists(threadId)) && !(await ask.holds('threads', threadId, required))) throw noThread(threadId);
    return proceed({ body: { ...input.body, params: { ...toRecord(params), metadata } } });
  },
  streamThreadEvents: onThread('threads:read'),

  // The socket authorises each command and each subscription.
  openThreadSocket: open,

  // Tools are authorised as the operations that they correspond to: `searchAssistants` and `waitForStatelessRun`.
  postMcp: open,
  deleteMcp: open,
  // Messages are authorised as `waitForRun`, tasks as `getAgentRun`.
  postA2a: async ({ params }, ask, proceed) => {
    await ask.useAssistant(params.assistant_id as string);
    return proceed();
  },
  getAgentCard: async ({ query }, ask, proceed) => {
    await ask.showAssistant(query.assistant_id as string);
    return proceed();
  },

  createCron: makingCron,
  createThreadCron: makingCron,
  searchCrons: searching('crons:search', () => []),
  countCrons: searching('crons:search', () => 0),
  getCron: onCron('crons:read'),
  updateCron: changing('crons:update', cronIdIn, noCron),
  deleteCron: onCron('crons:delete'),

  ...storeRules,
};
