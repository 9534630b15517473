import type { FastifyRequest } from 'fastify';
import { type Static, type TSchema, Type } from 'typebox';
import { fault, isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { protocolMode, questionEvent } from '../../../pipelines/agents/protocol/protocol-mode.ts';
import { awaitRunEnd } from '../../../pipelines/agents/runs/await-run-end.ts';
import { listRuns } from '../../../pipelines/agents/runs/list-runs.ts';
import { requestRun } from '../../../pipelines/agents/runs/request-run.ts';
import { multitaskStrategies } from '../../../pipelines/agents/runs/run.ts';
import type { RunRequest } from '../../../pipelines/agents/runs/run-request.ts';
import { readThread } from '../../../pipelines/agents/threads/read-thread.ts';
import { readThreadState } from '../../../pipelines/agents/threads/read-thread-state.ts';
import type { Thread, ThreadState } from '../../../pipelines/agents/threads/thread.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import { JsonObject, optional } from '../../server/formats.ts';
import { compileCheck } from '../../server/schema-check.ts';
import type { AgentAccess } from '../access/agent-access.ts';
import { Closed, JsonValue, words } from '../agent-schema.ts';
import type { Agents } from '../agent-services.ts';
import { GraphConfigBody } from '../assistants/assistant-schema.ts';
import { runRequestOf } from '../runs/run-request-of.ts';
import { CommandRefused } from './command.ts';

/** On whose behalf, and on which thread, a command is. */
export interface CommandScene {
  readonly agents: Agents;
  readonly caller: Caller;
  readonly request: FastifyRequest;
  /** Of this command alone. Default: that of the request. */
  readonly access?: AgentAccess;
  /** In small letters. */
  readonly threadId: string;
}

const strategy = () => optional(words(multitaskStrategies));
const start = paramsOf(
  Closed({
    assistant_id: Type.String({ minLength: 1, maxLength: 1_000 }),
    input: Type.Optional(JsonValue()),
    config: optional(GraphConfigBody),
    context: Type.Optional(JsonValue()),
    metadata: optional(JsonObject()),
    multitaskStrategy: strategy(),
    multitask_strategy: strategy(),
    langsmith_tracer: optional(Closed({ project_name: optional(Type.String()), example_id: optional(Type.String()) })),
  }),
);

/**
 * `run.start`: creates the thread if it does not exist. If the graph waits for an answer, the input is that answer: the Python
 * library sends `Command(resume=...)` in this form. Source: `@langchain/langgraph-api` 1.5.1, protocol/service.mts.
 */
export async function startRun(scene: CommandScene, params: unknown): Promise<object> {
  const { multitaskStrategy, multitask_strategy = multitaskStrategy, input = null, ...asked } = start(params);
  const isAnswer = input !== null && (await waitsForAnswer(scene, asked.config?.configurable));
  const given = isAnswer ? { command: { resume: input } } : { input };
  return { run_id: await makeRun(scene, { ...asked, ...given, multitask_strategy, if_not_exists: 'create' }) };
}

/** Whether the checkpoint that a new run begins on has an open interrupt. @throws CHECKPOINT_NOT_FOUND */
async function waitsForAnswer(
  scene: CommandScene,
  { checkpoint_id }: Readonly<Record<string, unknown>> = {},
): Promise<boolean> {
  const { agents, threadId } = scene;
  try {
    if (typeof checkpoint_id === 'string') {
      const checkpoint = { checkpoint_id };
      const text = await readThreadState(agents, threadId, { checkpoint, subgraphs: false, select: ['interrupts'] });
      return (JSON.parse(text) as Pick<ThreadState, 'interrupts'>).interrupts.length > 0;
    }
    const thread = await readThread(agents.database, agents.deploymentId, threadId);
    if (thread.status !== 'busy') return openInterrupts(thread).size > 0;
  } catch (error) {
    if (isRunlakeError(error) && error.code === 'THREAD_NOT_FOUND') return false;
    throw error;
  }
  // A client may answer as soon as it has the question, before the run that asks has ended.
  if (!(await hasAsked(scene))) return false;
  const thread = await afterRun(scene);
  return thread.status === 'busy' || openInterrupts(thread).size > 0;
}

/** Whether the running run of a thread has streamed a question. */
async function hasAsked({ agents, threadId }: CommandScene): Promise<boolean> {
  const { deploymentId, hub } = agents;
  const run = await runningRun(agents, threadId);
  if (run === undefined) return false;
  const reader = await hub.readRun({ deploymentId, threadId, runId: run.run_id }, 'start');
  try {
    const finished = reader.finish();
    for await (const { mode, event } of reader) if (mode === protocolMode && event === questionEvent) return true;
    await finished;
    return false;
  } finally {
    reader.close();
  }
}

/** Ids of the interrupts that a thread waits on. */
function openInterrupts({ status, interrupts }: Thread): ReadonlySet<string | undefined> {
  return new Set(status === 'interrupted' ? Object.values(interrupts).flatMap((list) => list.map(({ id }) => id)) : []);
}

const Answered = Closed({
  interrupt_id: Type.String({ minLength: 1, maxLength: 1_000 }),
  response: Type.Optional(JsonValue()),
  namespace: optional(Type.Array(Type.String()), { description: 'Where it was asked; the id says it already.' }),
});
const beside = {
  update: Type.Optional(JsonValue()),
  goto: Type.Optional(JsonValue()),
  config: optional(GraphConfigBody),
  metadata: optional(JsonObject()),
  strict_resume: optional(Type.Boolean(), { description: 'An answer to nothing is refused in either case.' }),
};
const respond = paramsOf(Closed({ responses: Type.Array(Answered, { minItems: 1, maxItems: 1_000 }), ...beside }));
const respondOne = paramsOf(Closed({ ...Answered.properties, ...beside }));

/** `input.respond`: a run that answers questions of the graph, all that are answered in one. */
export async function respondToInput(scene: CommandScene, params: unknown): Promise<object> {
  const several = typeof params === 'object' && params !== null && 'responses' in params;
  const asked = several ? respond(params) : oneAsMany(respondOne(params));
  const { agents, threadId } = scene;
  let thread = await readThread(agents.database, agents.deploymentId, threadId);
  // A client may answer as soon as it has the question, before the run that asks has ended.
  if (thread.status === 'busy') thread = await afterRun(scene);
  const open = openInterrupts(thread);
  for (const { interrupt_id: id } of asked.responses) {
    if (open.has(id)) continue;
    throw new CommandRefused('no_such_interrupt', `Thread '${threadId}' does not wait for an answer to '${id}'.`);
  }
  const resume = Object.fromEntries(
    asked.responses.map(({ interrupt_id, response = null }) => [interrupt_id, response]),
  );
  await makeRun(scene, {
    assistant_id: assistantOf(scene, thread),
    command: { resume, update: asked.update, goto: asked.goto },
    config: asked.config,
    metadata: asked.metadata,
    // Another answer that came at the same time is on its way.
    multitask_strategy: 'reject',
  });
  return {};
}

/** How long an answer waits for the run that asks for it to end: in between it stores what it has. */
const askerEndsWithinMs = 5_000;

/** The thread when the run that is under way on it has ended, or does not end. */
async function afterRun({ agents, threadId, request }: CommandScene): Promise<Thread> {
  const { database, deploymentId } = agents;
  const run = await runningRun(agents, threadId);
  if (run !== undefined) {
    const { drainStarted } = request.server;
    const signal = AbortSignal.any([AbortSignal.timeout(askerEndsWithinMs), drainStarted]);
    await awaitRunEnd(agents, { deploymentId, threadId, runId: run.run_id }, { signal });
  }
  return readThread(database, deploymentId, threadId);
}

async function runningRun({ database, deploymentId }: Agents, threadId: string) {
  const page = { limit: 1, offset: 0, status: 'running', select: ['run_id'] } as const;
  const [run] = await listRuns(database, deploymentId, threadId, page);
  return run;
}

function oneAsMany({ interrupt_id, response, ...rest }: ReturnType<typeof respondOne>): ReturnType<typeof respond> {
  return { ...rest, responses: [{ interrupt_id, response }] };
}

/**
 * The assistant that goes on with a thread: its metadata says which, unless the one that it said was asked about, since it may have
 * been changed after that. @throws THREAD_WITHOUT_GRAPH
 */
export function assistantOf({ request, access = request.agentAccess }: CommandScene, thread: Thread): string {
  const { graph_id, assistant_id: named = graph_id } = thread.metadata;
  const assistant_id = access === undefined ? named : access.assistantId;
  if (typeof assistant_id !== 'string') throw fault('THREAD_WITHOUT_GRAPH', { thread: thread.thread_id });
  return assistant_id;
}

export async function makeRun({ agents, threadId, ...scene }: CommandScene, body: RunRequest): Promise<string> {
  const asked = { ...body, stream_mode: [protocolMode], stream_resumable: true };
  const wanted = runRequestOf({ ...scene, body: asked, params: { thread_id: threadId } });
  const { run } = await requestRun(agents, wanted);
  return run.run_id;
}

/** Reads params. @throws INVALID_REQUEST */
export function paramsOf<const S extends TSchema>(schema: S): (params: unknown) => Static<S> {
  const check = compileCheck({ schema, httpPart: 'body', method: '', url: '' });
  return (params) => {
    const { error } = check(params ?? {}) as { readonly error?: Error };
    if (error !== undefined) throw error;
    return (params ?? {}) as Static<S>;
  };
}
