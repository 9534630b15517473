import { fault, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import { assistantIdOf } from '../../../pipelines/agents/assistants/system-assistant.ts';
import { bothOf, changesWith, metadataWith } from '../../../pipelines/agents/auth/access-filter.ts';
import type { AuthQuestion } from '../../../pipelines/agents/auth/agent-user.ts';
import { findThreadOfRun } from '../../../pipelines/agents/runs/find-thread-of-run.ts';
import { Answer } from '../../server/operation.ts';
import { pageOf } from '../agent-schema.ts';
import { snakeCased } from '../runs/run-body.ts';
import type { Rule, RuledInput, Values } from './access-rule.ts';
import { recordOf } from './questions.ts';
import { storeRules } from './store-rules.ts';

type Event = AuthQuestion['event'];

const threadIdOf = ({ params }: RuledInput) => (params.thread_id as string).toLowerCase();
const noThread = (thread: string) => fault('THREAD_NOT_FOUND', { thread });

const open: Rule = (_input, _ask, go) => go();

/** On one thread. Runs are seen through theirs. */
const onThread =
  (event: Event, missing: (input: RuledInput) => RunlakeError = (input) => noThread(threadIdOf(input))): Rule =>
  async (input, ask, go) => {
    const id = threadIdOf(input);
    const { run_id } = input.params;
    const { action } = input.query ?? {};
    await ask.reach(
      event,
      id,
      { thread_id: id, ...(run_id && { run_id }), ...(action ? { action } : {}) },
      missing(input),
    );
    return go();
  };

const onRun = (event: Event): Rule =>
  onThread(event, ({ params }) => fault('RUN_NOT_FOUND', { run: params.run_id as string }));

/** A reader who goes may stop the run, if asked to. */
const joiningRun: Rule = async (input, ask, go) => {
  if (input.query.cancel_on_disconnect) await onRun('threads:update')(input, ask, async () => undefined);
  return onRun('threads:read')(input, ask, go);
};

/** A change of metadata, which never takes what it changes out of reach. */
const changing =
  (event: Event, idOf: (input: RuledInput) => string, missing: (id: string) => RunlakeError): Rule =>
  async (input, ask, go) => {
    const [kind] = event.split(':');
    const id = idOf(input);
    const value = { ...input.body, [`${kind?.slice(0, -1)}_id`]: id };
    const { required, value: answered } = await ask.reach(event, id, value, missing(id));
    const metadata = answered.metadata;
    if (metadata === undefined || metadata === null) return go();
    return go({ body: { ...input.body, metadata: changesWith(recordOf(metadata), required) } });
  };

const searching =
  (event: Event, nothing: (input: RuledInput) => unknown): Rule =>
  async (input, ask, go) => {
    const { required, value } = await ask.allow(event, { ...input.body, metadata: input.body.metadata ?? {} });
    const metadata = bothOf(recordOf(value.metadata), required ?? {});
    return metadata === undefined ? nothing(input) : go({ body: { ...input.body, metadata } });
  };

const emptyPage = () => pageOf([], { total: 0, offset: 0 });

const assistantIdIn = ({ params }: RuledInput) => assistantIdOf(params.assistant_id as string);
const noAssistant = (assistant: string) => fault('ASSISTANT_NOT_FOUND', { assistant: assistant.slice(0, 100) });
const onAssistant =
  (event: Event): Rule =>
  async (input, ask, go) => {
    const id = assistantIdIn(input);
    await ask.reach(
      event,
      id,
      { assistant_id: id, ...recordOf(input.body) },
      noAssistant(input.params.assistant_id ?? id),
    );
    return go();
  };

/** What `if_exists` answers has to be within reach, as what is made is. */
const creating =
  (event: 'threads:create' | 'assistants:create', exists: (id: string) => RunlakeError): Rule =>
  async (input, ask, go) => {
    const { required, value } = await ask.allow(event, { ...input.body, metadata: input.body.metadata ?? {} });
    const made = await go({ body: { ...input.body, metadata: metadataWith(recordOf(value.metadata), required) } });
    const kind = event === 'threads:create' ? 'threads' : 'assistants';
    const id = recordOf(made)[kind === 'threads' ? 'thread_id' : 'assistant_id'] as string;
    if (!(await ask.holds(kind, id, required))) throw exists(id);
    return made;
  };

const running: Rule = async (input, ask, go) => {
  const threadId = input.params?.thread_id?.toLowerCase();
  const metadata = await ask.startRun(threadId, input.body as Values & { assistant_id: string });
  return go({ body: { ...input.body, metadata } });
};

const cronIdIn = ({ params }: RuledInput) => params.cron_id as string;
const noCron = (cron: string) => fault('CRON_NOT_FOUND', { cron });
const onCron =
  (event: Event): Rule =>
  async (input, ask, go) => {
    const id = cronIdIn(input);
    await ask.reach(event, id, { cron_id: id }, noCron(id));
    return go();
  };

const makingCron: Rule = async (input, ask, go) => {
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
    user_id: ask.ports.access.user.identity,
    end_time: end_time ?? null,
  });
  return go({ body: { ...input.body, metadata: metadataWith(recordOf(value.metadata), required) } });
};

/** Commands of the event-stream protocol that make a run. */
const startsRun = new Set<unknown>(['run.start', 'input.respond', 'state.fork']);

/** By operation. One that is not here is open to nobody under custom authentication. */
export const accessRules: Readonly<Record<string, Rule>> = {
  // Only where the operator switched it on, for tests.
  truncate: open,

  createAssistant: creating('assistants:create', (assistant) => fault('ASSISTANT_EXISTS', { assistant })),
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
  deleteAssistant: async (input, ask, go) => {
    const id = assistantIdIn(input);
    await ask.reach('assistants:delete', id, { assistant_id: id }, noAssistant(id));
    // Its runs go with it, wherever they are.
    const { required } = await ask.allow('threads:delete', { thread_id: null });
    if (!(await ask.ownsThreadsOf(id, required))) {
      throw fault('AUTH_FORBIDDEN', { reason: 'The assistant has runs on threads that are not yours.' });
    }
    return go();
  },

  createThread: creating('threads:create', (thread) => fault('THREAD_EXISTS', { thread })),
  searchThreads: searching('threads:search', emptyPage),
  countThreads: searching('threads:search', () => 0),
  pruneThreads: async (input, ask, go) => {
    const within: string[] = [];
    for (const id of input.body.thread_ids as readonly string[]) {
      const { required } = await ask.allow('threads:delete', { thread_id: id });
      if (await ask.holds('threads', id, required)) within.push(id);
    }
    return go({ body: { ...input.body, thread_ids: within } });
  },
  getThread: onThread('threads:read'),
  updateThread: changing('threads:update', threadIdOf, noThread),
  patchThreadState: changing('threads:update', threadIdOf, noThread),
  deleteThread: onThread('threads:delete'),
  copyThread: async (input, ask, go) => {
    await ask.allow('threads:create', { thread_id: null, metadata: {} });
    const noSource = () => fault('THREAD_TO_COPY_NOT_FOUND', { thread: threadIdOf(input) });
    return onThread('threads:read', noSource)(input, ask, go);
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
  createRunBatch: async (input, ask, go) => {
    const made: unknown[] = [];
    for (const each of input.body as unknown as Parameters<typeof snakeCased>[0][]) {
      const body = snakeCased(each);
      const metadata = await ask.startRun(undefined, { ...body });
      const answer = (await go({ body: [{ ...body, metadata }] })) as Answer;
      made.push(...(answer.body as unknown[]));
    }
    return new Answer({ body: made });
  },
  listRuns: onThread('threads:read'),
  getAgentRun: onRun('threads:read'),
  joinRun: joiningRun,
  joinRunStream: joiningRun,
  joinStatelessRunStream: async (input, ask, go) => {
    const runId = (input.params.run_id as string).toLowerCase();
    const threadId = await findThreadOfRun(ask.ports.database, ask.ports.deploymentId, runId);
    return joiningRun({ ...input, params: { thread_id: threadId, run_id: runId } }, ask, go);
  },
  deleteAgentRun: onRun('threads:delete'),
  cancelAgentRun: onRun('threads:update'),
  cancelAgentRuns: async (input, ask, go) => {
    const threadId = (input.body.thread_id as string | null | undefined)?.toLowerCase();
    const value = { thread_id: threadId ?? null, action: input.query.action ?? 'interrupt' };
    if (threadId !== undefined) await ask.reach('threads:update', threadId, value, noThread(threadId));
    else {
      const { required } = await ask.allow('threads:update', value);
      ask.ports.access.threads = { required, metadata: {} };
    }
    return go();
  },

  /** A command that starts a run is asked about as one, any other as a look at the thread, which has to be there. */
  postThreadCommand: async (input, ask, go) => {
    const threadId = threadIdOf(input);
    const { method, params } = recordOf(input.body);
    if (!startsRun.has(method)) return onThread('threads:read')(input, ask, go);
    const { assistant_id, ...asked } = recordOf(params);
    // Only a start names its assistant; the others go on with that of the thread, whatever they say.
    const named = method === 'run.start' && typeof assistant_id === 'string';
    const started = named ? assistant_id : await ask.assistantOfThread(threadId);
    const metadata = await ask.startRun(threadId, { ...asked, assistant_id: started });
    const required = ask.ports.access.threads?.required;
    if ((await ask.exists(threadId)) && !(await ask.holds('threads', threadId, required))) throw noThread(threadId);
    return go({ body: { ...input.body, params: { ...recordOf(params), metadata } } });
  },
  streamThreadEvents: onThread('threads:read'),

  // Each command and each subscription is asked about when it comes.
  openThreadSocket: open,

  // What a tool does is asked about as the operations that do the same: `searchAssistants` and `waitForStatelessRun`.
  postMcp: open,
  deleteMcp: open,
  // Messages are runs: `waitForRun`; a task is one: `getAgentRun`.
  postA2a: async ({ params }, ask, go) => {
    await ask.useAssistant(params.assistant_id as string);
    return go();
  },
  getAgentCard: async ({ query }, ask, go) => {
    await ask.showAssistant(query.assistant_id as string);
    return go();
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
