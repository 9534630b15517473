import { type Static, Type } from 'typebox';
import { dropNullish } from '../../infra/collections/drop-nullish.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { toJsonObject } from '../../infra/json/json-value.ts';
import { readDatabaseClock } from '../../infra/postgres/clock.ts';
import { resolveAssistant, resolveAssistantId } from '../../pipelines/agents/assistants/assistant.ts';
import { addRequiredMetadata } from '../../pipelines/agents/auth/access-filter.ts';
import { type AgentUser, removeAddedFields } from '../../pipelines/agents/auth/agent-user.ts';
import {
  type CronFilter,
  countCrons as count,
  createCron as create,
  cronFields,
  cronSortFields,
  onRunCompleted,
  readCron,
  deleteCron as remove,
  searchCrons as search,
  updateCron as update,
} from '../../pipelines/agents/crons/write-crons.ts';
import { parseTime } from '../../pipelines/ingest/run-event/times.ts';
import { JsonObject, nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import {
  createChangeRule,
  createSearchRule,
  createThreadNotFoundError,
  type Rule,
  type RuleInput,
} from './access/rules.ts';
import { type AgentInput, type Agents, defineAgentOperation, readAccess, runAccess } from './agent-operation.ts';
import { ClosedObject, readSearch, searchFields, selectFields, ThreadParams } from './agent-schema.ts';
import { RunBody } from './runs/run-schema.ts';

const run = RunBody.properties;

/** Fields that a cron copies to each of its runs. They have the same schemas as in a request that creates a run. */
const payloadFields = {
  input: run.input,
  config: run.config,
  context: run.context,
  webhook: run.webhook,
  interrupt_before: run.interrupt_before,
  interrupt_after: run.interrupt_after,
  stream_mode: run.stream_mode,
  stream_subgraphs: run.stream_subgraphs,
  stream_resumable: run.stream_resumable,
  durability: run.durability,
  checkpoint_during: run.checkpoint_during,
  multitask_strategy: run.multitask_strategy,
  feedback_keys: run.feedback_keys,
};

const Schedule = Text({
  maxLength: 1_000,
  description:
    'Minute, hour, day of the month, month, day of the week. If both days are restricted, either one must match.',
});

const cronOptions = {
  timezone: optional(Text({ maxLength: 100 }), {
    description: 'IANA time zone of the schedule. Default: UTC.',
  }),
  end_time: optional(Timestamp(), { description: 'Time after which the cron does not fire.' }),
  enabled: optional(Type.Boolean(), { description: 'Default: true.' }),
  metadata: optional(JsonObject(), { description: 'Metadata of the cron and of each of its runs.' }),
  on_run_completed: optional(OneOf(onRunCompleted), {
    description: 'What happens to the thread of each run if the cron has no thread. Default: delete.',
  }),
};

/** Fields of a request that creates a cron. Source: LangGraph Platform API, CronCreate and ThreadCronCreate. */
const cronBody = { schedule: Schedule, assistant_id: run.assistant_id, ...cronOptions, ...payloadFields };
const unsupportedFields = Object.keys(run).filter((name) => !Object.hasOwn(cronBody, name));
const CronBody = ClosedObject(cronBody, unsupportedFields);
const CronChangesBody = ClosedObject({ schedule: optional(Schedule), ...cronOptions, ...payloadFields }, [
  ...unsupportedFields,
  'assistant_id',
]);

/** Returns the payload in a request body. @throws FIELD_NOT_BUILT */
function readPayload(body: Static<typeof CronChangesBody>, hasThread: boolean): Readonly<Record<string, unknown>> {
  // The caller created the thread, so a run must not delete it.
  if (hasThread && body.on_run_completed === 'delete')
    throw runlakeError('FIELD_NOT_BUILT', { field: 'on_run_completed' });
  const { input, ...fields } = selectFields(body, Object.keys(payloadFields));
  return { ...dropNullish(fields), ...(input !== undefined && { input }) };
}

/** Converts a time to ISO 8601 in UTC. A time without a time zone is interpreted as UTC. */
function normaliseEndTime(text: string): string {
  return new Date((parseTime(text) as number) / 1_000).toISOString();
}

const Cron = Type.Object({
  cron_id: Uuid(),
  assistant_id: Uuid(),
  thread_id: nullable(Uuid()),
  schedule: Type.String(),
  timezone: nullable(Type.String()),
  end_time: nullable(Timestamp()),
  next_run_date: nullable(Timestamp(), { description: 'Null if the cron does not fire in its current state.' }),
  on_run_completed: nullable(Type.String()),
  enabled: Type.Boolean({
    description: 'The server disables a cron whose schedule is no longer valid after an update.',
  }),
  payload: JsonObject({ description: 'Fields of each run.' }),
  metadata: JsonObject(),
  user_id: nullable(Type.String()),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});
/**
 * A cron in a response. If the request has `select`, the cron has only the selected fields. `now` is the current time
 * of the server.
 */
const SelectedCron = Type.Partial(Type.Object({ ...Cron.properties, now: Timestamp() }));

const CronParams = Type.Object({ cron_id: Uuid() });

const readId = ({ params }: RuleInput) => params.cron_id as string;
const createNotFoundError = (cron: string) => runlakeError('CRON_NOT_FOUND', { cron });

const createCronRule =
  (event: 'crons:read' | 'crons:delete'): Rule =>
  async (input, authorizer, proceed) => {
    const id = readId(input);
    await authorizer.authorizeRow(event, id, { cron_id: id }, createNotFoundError(id));
    return proceed();
  };

const cronCreationRule: Rule = async (input, ask, proceed) => {
  const threadId = input.params?.thread_id?.toLowerCase();
  const { schedule, end_time, metadata, ...payload } = input.body;
  await ask.authorizeUseAssistant(payload.assistant_id as string);
  if (threadId !== undefined) {
    const run = {
      thread_id: threadId,
      assistant_id: resolveAssistantId(payload.assistant_id as string),
      kwargs: payload,
    };
    await ask.authorizeRow(
      'threads:create_run',
      threadId,
      { ...run, metadata: metadata ?? {} },
      createThreadNotFoundError(threadId),
    );
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
  return proceed({ body: { ...input.body, metadata: addRequiredMetadata(toJsonObject(value.metadata), required) } });
};

const cronFilter = {
  assistant_id: optional(Text({ maxLength: 1_000, description: 'Id of the assistant or of its graph.' })),
  thread_id: optional(Uuid()),
  enabled: optional(Type.Boolean()),
  metadata: optional(JsonObject({ description: 'Only crons whose metadata contains it.' })),
};
const CronFilterBody = ClosedObject(cronFilter);

/** Refuses a payload that would fail each time the cron fires. @throws WEBHOOK_INVALID, FEEDBACK_ADDRESS_UNSET */
function requireValidPayload(
  { webhooks, acceptsFeedbackKeys }: Pick<Agents, 'webhooks' | 'acceptsFeedbackKeys'>,
  payload: { readonly webhook?: unknown; readonly feedback_keys?: unknown },
): void {
  const { webhook, feedback_keys: keys } = payload;
  if (Array.isArray(keys) && keys.length > 0 && !acceptsFeedbackKeys) throw runlakeError('FEEDBACK_ADDRESS_UNSET');
  if (typeof webhook === 'string') webhooks.check(webhook);
}

/** Maximum number of crons per deployment. Each cron needs a row, and is checked each time it fires. */
const maxCrons = 10_000;

const creationOperation = {
  method: 'POST',
  access: runAccess,
  rule: cronCreationRule,
  errors: [
    'ASSISTANT_NOT_FOUND',
    'CRON_SCHEDULE_INVALID',
    'CRON_TIMEZONE_UNKNOWN',
    'CRON_LIMIT_REACHED',
    'FIELD_NOT_BUILT',
    'WEBHOOK_INVALID',
    'FEEDBACK_ADDRESS_UNSET',
  ],
} as const;

/** Converts a cron, or its selected fields, to the form that clients receive. */
function formatCron<Fields extends { readonly payload?: Readonly<Record<string, unknown>> }>(cron: Fields): Fields {
  const user = cron.payload?.on_behalf_of as AgentUser | undefined;
  return user === undefined ? cron : { ...cron, payload: { ...cron.payload, on_behalf_of: removeAddedFields(user) } };
}

async function createCronFromRequest(
  input: AgentInput & { readonly body: Static<typeof CronBody> },
  threadId: string | null,
) {
  const { body, caller, services, request } = input;
  const { database, deploymentId } = services.agents;
  const payload = readPayload(body, threadId !== null);
  const access = request.agentAccess;
  const { assistant_id } = await resolveAssistant(database, deploymentId, body.assistant_id);
  requireValidPayload(services.agents, payload);
  const created = await create(
    database,
    deploymentId,
    {
      assistant_id,
      thread_id: threadId,
      schedule: body.schedule,
      timezone: body.timezone ?? null,
      end_time: body.end_time ? normaliseEndTime(body.end_time) : null,
      on_run_completed: threadId === null ? (body.on_run_completed ?? 'delete') : null,
      enabled: body.enabled ?? true,
      payload: { ...payload, ...(access && { on_behalf_of: access.user }) },
      metadata: body.metadata ?? {},
      user_id: access?.user.identity ?? caller.userId,
    },
    { maxCrons },
  );
  return formatCron(created);
}

const createCron = defineAgentOperation({
  ...creationOperation,
  operationId: 'createCron',
  path: '/runs/crons',
  summary: 'Create a cron that starts each run on a new thread',
  schema: { body: CronBody, response: { 200: Cron } },
  handler: (input) => createCronFromRequest(input, null),
});

const createThreadCron = defineAgentOperation({
  ...creationOperation,
  operationId: 'createThreadCron',
  path: '/threads/:thread_id/runs/crons',
  summary: 'Create a cron that starts runs on a thread',
  schema: { params: ThreadParams, body: CronBody, response: { 200: Cron } },
  errors: [...creationOperation.errors, 'THREAD_NOT_FOUND'],
  handler: (input) => createCronFromRequest(input, input.params.thread_id.toLowerCase()),
});

const deleteCron = defineAgentOperation({
  operationId: 'deleteCron',
  method: 'DELETE',
  path: '/runs/crons/:cron_id',
  summary: 'Delete a cron; its existing runs continue',
  access: runAccess,
  rule: createCronRule('crons:delete'),
  errors: ['CRON_NOT_FOUND'],
  schema: { params: CronParams, response: { 204: Type.Null() } },
  handler: async ({ params, services: { agents } }) => {
    await remove(agents.database, agents.deploymentId, params.cron_id);
    return null;
  },
});

const getCron = defineAgentOperation({
  operationId: 'getCron',
  method: 'GET',
  path: '/runs/crons/:cron_id',
  summary: 'Get a cron',
  access: readAccess,
  rule: createCronRule('crons:read'),
  errors: ['CRON_NOT_FOUND'],
  schema: { params: CronParams, response: { 200: Cron } },
  handler: async ({ params, services: { agents } }) =>
    formatCron(await readCron(agents.database, agents.deploymentId, params.cron_id)),
});

function buildFilter({
  assistant_id: assistant,
  thread_id,
  enabled,
  metadata,
}: Static<typeof CronFilterBody>): CronFilter {
  return {
    assistantId: assistant ? resolveAssistantId(assistant) : undefined,
    threadId: thread_id ?? undefined,
    enabled: enabled ?? undefined,
    metadata: metadata ?? undefined,
  };
}

const searchCrons = defineAgentOperation({
  operationId: 'searchCrons',
  method: 'POST',
  path: '/runs/crons/search',
  summary: 'Search crons, newest first',
  access: readAccess,
  rule: createSearchRule('crons:search', () => []),
  errors: ['ANSWER_TOO_LARGE'],
  schema: {
    body: ClosedObject({ ...cronFilter, ...searchFields(cronSortFields, [...cronFields, 'now']) }),
    response: { 200: Type.Array(SelectedCron) },
  },
  handler: async ({ body, services: { agents } }) => {
    const { limit: limitRows, offset: offsetRows, ...order } = readSearch(body);
    const crons = await search(agents.database, agents.deploymentId, buildFilter(body), {
      ...{ ...order, limitRows, offsetRows },
      select: body.select,
      limitBytes: agents.config.maxPageBytes,
    });
    const now = body.select?.includes('now')
      ? { now: new Date(await readDatabaseClock(agents.database)).toISOString() }
      : {};
    return crons.map((cron) => selectFields({ ...formatCron(cron), ...now }, body.select));
  },
});

const countCrons = defineAgentOperation({
  operationId: 'countCrons',
  method: 'POST',
  path: '/runs/crons/count',
  summary: 'Count matching crons',
  access: readAccess,
  rule: createSearchRule('crons:search', () => 0),
  schema: { body: CronFilterBody, response: { 200: Type.Integer() } },
  handler: ({ body, services: { agents } }) => count(agents.database, agents.deploymentId, buildFilter(body)),
});

const updateCron = defineAgentOperation({
  operationId: 'updateCron',
  method: 'PATCH',
  path: '/runs/crons/:cron_id',
  summary: 'Update a cron',
  description:
    'Absent fields stay unchanged; metadata is merged. Null removes the time zone or the end time. After a change of the schedule, the cron next fires at its first time after now.',
  access: runAccess,
  rule: createChangeRule('crons:update', readId, createNotFoundError),
  errors: [
    'CRON_NOT_FOUND',
    'CRON_SCHEDULE_INVALID',
    'CRON_TIMEZONE_UNKNOWN',
    'FIELD_NOT_BUILT',
    'WEBHOOK_INVALID',
    'FEEDBACK_ADDRESS_UNSET',
  ],
  schema: { params: CronParams, body: CronChangesBody, response: { 200: Cron } },
  handler: async ({ params, body, services: { agents } }) => {
    const { database, deploymentId } = agents;
    const { thread_id } = await readCron(database, deploymentId, params.cron_id);
    const { schedule, timezone, end_time, on_run_completed, enabled, metadata } = body;
    const changes = {
      ...dropNullish({ schedule, enabled, metadata, ...(thread_id === null && { on_run_completed }) }),
      ...(timezone !== undefined && { timezone }),
      ...(end_time !== undefined && { end_time: end_time === null ? null : normaliseEndTime(end_time) }),
      payload: readPayload(body, thread_id !== null),
    };
    requireValidPayload(agents, changes.payload);
    return formatCron(await update(database, deploymentId, params.cron_id, changes));
  },
});

export const cronOperations = [createCron, createThreadCron, searchCrons, countCrons, getCron, updateCron, deleteCron];
