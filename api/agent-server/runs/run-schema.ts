import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { RunResponse } from '../../../pipelines/agents/runs/read-run.ts';
import type { RequestedRun } from '../../../pipelines/agents/runs/request-run.ts';
import { multitaskStrategies, type RunCommand, type Run as RunRecord } from '../../../pipelines/agents/runs/run.ts';
import { type RunRequest, streamModes } from '../../../pipelines/agents/runs/run-request.ts';
import { maxNameLength } from '../../../pipelines/projects/project.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import { JsonObject, nullable, OneOf, optional, Text, Uuid } from '../../server/formats.ts';
import type { AgentAccess } from '../access/agent-access.ts';
import { createThreadRule } from '../access/rules.ts';
import { Checkpoint, ClosedObject, GraphConfigBody, JsonValue, ThreadParams } from '../agent-schema.ts';

export const ThreadRunParams = Type.Object({ ...ThreadParams.properties, run_id: Uuid() });

/** Returns the ids in lower case, which is how they are stored and streamed. */
export function normaliseRunIds(params: { readonly thread_id: string; readonly run_id: string }) {
  return { threadId: params.thread_id.toLowerCase(), runId: params.run_id.toLowerCase() };
}

/**
 * Returns the path of a run. It is below the path of the run's thread or, if the thread was created only for this run,
 * below `/runs`. Clients parse the ids from this path.
 */
export function buildRunPath(
  { thread_id, run_id }: Pick<RunRecord, 'thread_id' | 'run_id'>,
  stateless: boolean,
): string {
  return stateless ? `/runs/${run_id}` : `/threads/${thread_id}/runs/${run_id}`;
}

/** Returns a rule that checks access to a run. A run is accessible if its thread is. */
export const createRunRule = (event: 'threads:read' | 'threads:update' | 'threads:delete') =>
  createThreadRule(event, ({ params }) => runlakeError('RUN_NOT_FOUND', { run: params.run_id as string }));

export const StreamMode = OneOf(streamModes);
const nodes = () =>
  optional(Type.Union([Type.Literal('*'), Type.Array(Type.String())]), { description: 'Names of nodes, or `*`.' });

/** Project and example of the trace of a run. */
export const LangsmithTracer = optional(
  ClosedObject({
    project_name: optional(Text({ minLength: 1, maxLength: maxNameLength })),
    example_id: optional(Uuid()),
  }),
);

const fields = {
  assistant_id: Type.String({ minLength: 1, maxLength: 1_000, description: 'Id of the assistant or of its graph.' }),
  input: Type.Optional(JsonValue({ description: 'Null continues from the current state of the thread.' })),
  command: optional(
    Type.Unsafe<RunCommand>(
      ClosedObject({
        lg_name: Type.Optional(Type.Literal('Command', { description: 'Serialisation of the library.' })),
        update: Type.Optional(JsonValue()),
        resume: Type.Optional(
          JsonValue({ description: 'Value that resumes the interrupt, or values by interrupt id.' }),
        ),
        goto: Type.Optional(
          JsonValue({
            description: 'A node, {node, input}, or a list of them. Also the serialised Send of the library.',
          }),
        ),
      }),
    ),
  ),
  config: optional(GraphConfigBody),
  context: Type.Optional(JsonValue()),
  metadata: optional(JsonObject()),
  stream_mode: optional(Type.Union([StreamMode, Type.Array(StreamMode)]), { description: 'Default: values.' }),
  stream_subgraphs: optional(Type.Boolean()),
  stream_resumable: optional(Type.Boolean(), {
    description: 'Keep the events, so that a client can reconnect with Last-Event-ID without a gap.',
  }),
  feedback_keys: optional(Type.Array(Text({ minLength: 1, maxLength: 180 }), { maxItems: 100 }), {
    description: 'The last event, `feedback`, has a URL for each key, which accepts feedback on the run.',
  }),
  interrupt_before: nodes(),
  interrupt_after: nodes(),
  checkpoint: optional(Checkpoint),
  checkpoint_id: optional(Type.String({ minLength: 1, maxLength: 1_000 })),
  webhook: optional(Type.String({ minLength: 1, maxLength: 65_536 }), {
    description: 'URL, or path of this server, that is called at the end of the run.',
  }),
  multitask_strategy: optional(OneOf(multitaskStrategies), {
    description: 'What happens if another run of the thread is active. Default: enqueue.',
  }),
  on_disconnect: optional(OneOf(['cancel', 'continue']), {
    description:
      'What happens to the run if the connection of its streaming or waiting request closes. Default: continue.',
  }),
  on_completion: optional(OneOf(['delete', 'keep']), {
    description: 'What happens to the thread of a stateless run. Default: delete.',
  }),
  after_seconds: optional(Type.Number({ minimum: 0, maximum: 315_360_000 })),
  if_not_exists: optional(OneOf(['create', 'reject']), {
    description: 'What happens if the thread does not exist. Default: reject.',
  }),
  durability: optional(OneOf(['sync', 'async', 'exit']), {
    description: 'When state is stored: before the next step, concurrently with it, or at the end. Default: async.',
  }),
  strict_resume: optional(Type.Literal(false), { description: 'True is not supported yet.' }),
  checkpoint_during: optional(Type.Boolean(), { description: 'Deprecated form of durability: false is exit.' }),
  langsmith_tracer: LangsmithTracer,
} as const;

/** Body of a request that creates a run. Source: LangGraph Platform API, RunCreateStateful and RunCreateStateless. */
export const RunBody = ClosedObject(fields);

const responseFields = Type.Object({
  run_id: Type.String(),
  thread_id: Type.String(),
  assistant_id: Type.String(),
  created_at: Type.String(),
  updated_at: Type.String(),
  status: Type.String(),
  metadata: JsonObject(),
  kwargs: JsonObject({ description: 'Fields of the request.' }),
  multitask_strategy: nullable(Type.String()),
  langsmith_session_name: Type.String({ description: 'Project of the trace.' }),
});
export const Run = Type.Unsafe<RunResponse>(responseFields);
/** A run in a response. If the request has `select`, the run has only the selected fields. */
export const SelectedRun = Type.Unsafe<Partial<RunResponse>>(Type.Partial(responseFields));
export const runFields = Object.keys(responseFields.properties);

/** Converts an HTTP request to the run request that the pipeline expects. */
export function toRunRequest(input: {
  readonly caller: Caller;
  readonly body: RunRequest;
  readonly request: FastifyRequest;
  readonly params?: { readonly thread_id?: string } | undefined;
  /** Access rights of the run. Default: the access rights of the request. */
  readonly access?: AgentAccess | undefined;
}): RequestedRun {
  const { userId, keyId, workspaceId } = input.caller;
  const access = input.access ?? input.request.agentAccess;
  return {
    request: input.body,
    threadId: input.params?.thread_id?.toLowerCase(),
    sender: { userId, keyId, workspaceId },
    headers: input.request.headers,
    user: access?.user,
    threadAccess: access?.threads,
  };
}
