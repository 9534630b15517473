import { type Static, Type } from 'typebox';
import { dropNullish } from '../../infra/collections/drop-nullish.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { Dictionary } from '../../infra/json/dictionary.ts';
import { toJsonObject } from '../../infra/json/json-value.ts';
import { addRequiredMetadata } from '../../pipelines/agents/auth/access-filter.ts';
import { pruneThreads as prune, deleteThread as remove } from '../../pipelines/agents/threads/delete-thread.ts';
import {
  checkPaths,
  countThreads as count,
  extractPaths,
  listRootFields,
  searchThreads as search,
} from '../../pipelines/agents/threads/search-threads.ts';
import {
  readThreadForResponse,
  type Thread as ThreadRecord,
  type TtlStrategy,
  threadStatuses,
} from '../../pipelines/agents/threads/thread.ts';
import {
  copyThreadWithState as copy,
  createThreadWithState as create,
} from '../../pipelines/agents/threads/update-thread-state.ts';
import { updateThread as update } from '../../pipelines/agents/threads/write-threads.ts';

import { JsonObject, OneOf, optional, Timestamp, Uuid } from '../server/formats.ts';
import { RawResponse } from '../server/operation.ts';
import {
  createChangeRule,
  createCreationRule,
  createSearchRule,
  createThreadNotFoundError,
  createThreadRule,
  readThreadId,
} from './access/rules.ts';
import { defineAgentOperation, graphErrors, readAccess, runAccess } from './agent-operation.ts';
import {
  buildEmptyPage,
  buildPage,
  ClosedObject,
  JsonValue,
  pageDescription,
  readSearch,
  searchFields,
  selectFields,
  ThreadParams,
} from './agent-schema.ts';
import { RunBody } from './runs/run-schema.ts';

const fields = {
  thread_id: Uuid(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
  state_updated_at: Timestamp({ description: 'Time of the last change of the state.' }),
  metadata: JsonObject({ description: 'Contains `graph_id` and `assistant_id` from the first run on.' }),
  status: OneOf(threadStatuses),
  config: JsonObject({ description: 'Configuration of the last configured run, merged with that of its assistant.' }),
  values: JsonValue({ description: 'State after the last ended run.' }),
  interrupts: JsonObject({ description: 'Open interrupts by the id of their task.' }),
  error: JsonValue({ description: 'Error of the last run if it failed.' }),
};

const Thread = Type.Object({
  ...fields,
  ttl: Type.Optional(JsonObject({ description: 'strategy, ttl_minutes and expires_at; only with `include=ttl`.' })),
});
const SelectedThread = Type.Partial(
  Type.Object({ ...fields, extracted: JsonObject({ description: 'Values of the paths in `extract`.' }) }),
);

/** Removes `ttl`, because it is returned only on request. */
function formatThread({ ttl: _onRequest, ...thread }: ThreadRecord): Omit<ThreadRecord, 'ttl'> {
  return thread;
}

const Strategy = optional(OneOf(['delete', 'keep_latest']));

const Ttl = optional(
  Type.Union([
    Type.Number({ minimum: 0, maximum: 1e9, description: 'Minutes; strategy delete.' }),
    ClosedObject({ ttl: Type.Number({ minimum: 0, maximum: 1e9, description: 'Minutes.' }), strategy: Strategy }),
  ]),
  {
    description: 'TTL after the last change, and what is deleted then: the thread, or all but its latest state.',
  },
);

/** Converts a TTL. The default strategy is to delete the thread. */
function normaliseTtl(ttl: Static<typeof Ttl> | undefined): { strategy: TtlStrategy; minutes: number } | undefined {
  if (typeof ttl === 'number') return { strategy: 'delete', minutes: ttl };
  return ttl === undefined || ttl === null ? undefined : { strategy: ttl.strategy ?? 'delete', minutes: ttl.ttl };
}

const StateUpdate = ClosedObject({
  values: Type.Optional(JsonValue()),
  command: RunBody.properties.command,
  as_node: optional(Type.String()),
});

const createThread = defineAgentOperation({
  operationId: 'createThread',
  method: 'POST',
  path: '/threads',
  summary: 'Create a thread, optionally with state',
  access: runAccess,
  rule: createCreationRule('threads:create', (thread) => runlakeError('THREAD_EXISTS', { thread })),
  errors: [
    'THREAD_EXISTS',
    'THREAD_WITHOUT_GRAPH',
    'THREAD_BUSY',
    'THREAD_NOT_FOUND',
    'STATE_UPDATE_INVALID',
    'GRAPH_NODE_UNKNOWN',
    ...graphErrors,
  ],
  schema: {
    body: ClosedObject({
      thread_id: optional(Uuid()),
      metadata: optional(JsonObject({ description: '`graph_id` is the graph whose state `supersteps` write.' })),
      if_exists: optional(OneOf(['raise', 'do_nothing'])),
      ttl: Ttl,
      supersteps: optional(Type.Array(ClosedObject({ updates: Type.Array(StateUpdate) }), { maxItems: 1_000 }), {
        description: 'Updates of the state, step by step, as if nodes had returned them. Ignored if the thread exists.',
      }),
    }),
    response: { 200: Thread },
  },
  handler: async ({ body, services: { agents }, request }) => {
    const thread = {
      metadata: body.metadata ?? {},
      ifExists: body.if_exists ?? 'raise',
      ...dropNullish({ threadId: body.thread_id, ttl: normaliseTtl(body.ttl) }),
    };
    const supersteps = (body.supersteps ?? []).map(({ updates }, step) =>
      updates.map(({ as_node, ...written }, index) => {
        if (written.command && hasFields(written.values)) throw createStepError(step, index);
        return { ...written, ...dropNullish({ as_node }) };
      }),
    );
    return formatThread(await create({ ...agents, logger: request.log }, thread, supersteps));
  },
});

function hasFields(values: unknown): boolean {
  return values !== undefined && values !== null && Object.keys(values).length > 0;
}

function createStepError(step: number, index: number): Error {
  const loc = ['body', 'supersteps', step, 'updates', index, 'values'];
  const msg = 'have no effect with a command, whose update is written';
  return runlakeError('INVALID_REQUEST', {}, { fields: [{ loc, msg, type: 'values_beside_command' }] });
}

const threadFilter = {
  metadata: optional(JsonObject({ description: 'Only threads whose metadata contains it.' })),
  values: optional(JsonObject({ description: 'Only threads whose state contains it.' })),
  status: optional(OneOf(threadStatuses)),
};

const searchThreads = defineAgentOperation({
  operationId: 'searchThreads',
  method: 'POST',
  path: '/threads/search',
  summary: 'Search threads, newest first',
  description: pageDescription,
  access: readAccess,
  rule: createSearchRule('threads:search', buildEmptyPage),
  errors: ['ANSWER_TOO_LARGE'],
  schema: {
    body: ClosedObject({
      ...threadFilter,
      ids: optional(Type.Array(Uuid(), { maxItems: 10_000 })),
      ...searchFields(['thread_id', 'status', 'created_at', 'updated_at', 'state_updated_at'], Object.keys(fields)),
      extract: optional(Dictionary(Type.String({ maxLength: 1_000 }), { maxProperties: 10 }), {
        description: 'Names and paths, such as `values.messages[-1].content`, of the values to return as `extracted`.',
      }),
    }),
    response: { 200: Type.Array(SelectedThread) },
  },
  handler: async ({ body, services: { agents } }) => {
    const { ids, metadata, values, status, select, extract } = body;
    const page = readSearch(body);
    if (extract) checkPaths(extract);
    const { threads, total } = await search(agents.database, agents.deploymentId, {
      ...dropNullish({ ids, metadata, values, status }),
      ...page,
      fields: select ? ([...select, ...listRootFields(extract ?? {})] as (keyof ThreadRecord)[]) : undefined,
      limitBytes: agents.config.maxPageBytes,
    });
    const rows = threads.map((thread) => ({
      ...selectFields(thread, select),
      ...(extract && { extracted: extractPaths(thread, extract) }),
    }));
    return buildPage(rows, { total, offset: page.offset });
  },
});

const countThreads = defineAgentOperation({
  operationId: 'countThreads',
  method: 'POST',
  path: '/threads/count',
  summary: 'Count matching threads',
  access: readAccess,
  rule: createSearchRule('threads:search', () => 0),
  schema: { body: ClosedObject(threadFilter), response: { 200: Type.Integer() } },
  handler: async ({ body: { metadata, values, status }, services: { agents } }) =>
    count(agents.database, agents.deploymentId, dropNullish({ metadata, values, status })),
});

const pruneThreads = defineAgentOperation({
  operationId: 'pruneThreads',
  method: 'POST',
  path: '/threads/prune',
  summary: 'Delete threads, or all but their latest state',
  description: 'Unknown ids are ignored.',
  access: runAccess,
  rule: async ({ body }, authorizer, proceed) => {
    const deletableIds: string[] = [];
    for (const id of body.thread_ids as readonly string[]) {
      const { required } = await authorizer.allow('threads:delete', { thread_id: id });
      if (await authorizer.rowMatches('threads', id, required)) deletableIds.push(id);
    }
    return proceed({ body: { ...body, thread_ids: deletableIds } });
  },
  schema: {
    body: ClosedObject({ thread_ids: Type.Array(Uuid(), { maxItems: 10_000 }), strategy: Strategy }),
    response: { 200: Type.Object({ pruned_count: Type.Integer() }) },
  },
  handler: async ({ body: { thread_ids: threadIds, strategy }, services: { agents } }) => {
    const pruneOptions = { threadIds, strategy: strategy ?? ('delete' as const) };
    return { pruned_count: await prune(agents.database, agents.deploymentId, pruneOptions) };
  },
});

const getThread = defineAgentOperation({
  operationId: 'getThread',
  method: 'GET',
  path: '/threads/:thread_id',
  summary: 'Get a thread',
  access: readAccess,
  rule: createThreadRule('threads:read'),
  errors: ['THREAD_NOT_FOUND', 'OVERLOADED'],
  schema: {
    params: ThreadParams,
    query: Type.Object({
      include: Type.Optional(Type.Array(OneOf(['ttl']), { description: '`ttl`: the TTL of the thread.' })),
    }),
    response: { 200: Thread },
  },
  handler: async ({ params, query, services: { agents } }) => {
    const thread = await readThreadForResponse(agents.database, agents.deploymentId, params.thread_id);
    return query.include?.includes('ttl') ? thread : formatThread(thread);
  },
});

const threadChangeOperation = {
  method: 'PATCH',
  access: runAccess,
  rule: createChangeRule('threads:update', readThreadId, createThreadNotFoundError),
  errors: ['THREAD_NOT_FOUND'],
} as const;

const updateThread = defineAgentOperation({
  ...threadChangeOperation,
  operationId: 'updateThread',
  path: '/threads/:thread_id',
  summary: 'Update the metadata or TTL of a thread',
  description: 'Metadata is merged. With `Prefer: return=minimal` the response is 204 without a body.',
  schema: {
    params: ThreadParams,
    body: ClosedObject({ metadata: optional(JsonObject()), ttl: Ttl }),
    response: { 200: Thread, 204: Type.Null() },
  },
  handler: async ({ params, body, services: { agents }, request }) => {
    const change = {
      ...dropNullish({ metadata: body.metadata, ttl: normaliseTtl(body.ttl) }),
      ...(body.ttl === null && { ttl: null }),
    };
    const thread = await update(agents.database, agents.deploymentId, params.thread_id, change);
    const wantsMinimalResponse = /(?:^|,)\s*return=minimal\s*(?:[,;]|$)/i.test(String(request.headers.prefer ?? ''));
    return wantsMinimalResponse ? new RawResponse({ status: 204 }) : formatThread(thread);
  },
});

const patchThreadState = defineAgentOperation({
  ...threadChangeOperation,
  operationId: 'patchThreadState',
  path: '/threads/:thread_id/state',
  summary: 'Merge metadata into the metadata of a thread',
  description: 'Deprecated form of updating the thread.',
  schema: { params: ThreadParams, body: ClosedObject({ metadata: JsonObject() }), response: { 204: Type.Null() } },
  handler: async ({ params, body: { metadata }, services: { agents } }) => {
    await update(agents.database, agents.deploymentId, params.thread_id, { metadata });
    return null;
  },
});

const deleteThread = defineAgentOperation({
  operationId: 'deleteThread',
  method: 'DELETE',
  path: '/threads/:thread_id',
  summary: 'Delete a thread with its state and its runs',
  access: runAccess,
  rule: createThreadRule('threads:delete'),
  errors: ['THREAD_NOT_FOUND'],
  schema: { params: ThreadParams, response: { 204: Type.Null() } },
  handler: async ({ params, services: { agents } }) => {
    await remove(agents.database, agents.deploymentId, params.thread_id);
    return null;
  },
});

const copyThread = defineAgentOperation({
  operationId: 'copyThread',
  method: 'POST',
  path: '/threads/:thread_id/copy',
  summary: 'Copy a thread with its state and history, without its runs',
  access: runAccess,
  rule: async (input, authorizer, proceed) => {
    const { required, value } = await authorizer.allow('threads:create', { thread_id: null, metadata: {} });
    const metadata = addRequiredMetadata(toJsonObject(value.metadata), required);
    authorizer.deps.access.threads = { required, metadata };
    const createMissingSourceError = () => runlakeError('THREAD_TO_COPY_NOT_FOUND', { thread: readThreadId(input) });
    return createThreadRule('threads:read', createMissingSourceError)(input, authorizer, proceed);
  },
  errors: ['THREAD_TO_COPY_NOT_FOUND'],
  schema: { params: ThreadParams, response: { 200: Thread } },
  handler: async ({ params, services: { agents }, request }) => {
    const threadId = params.thread_id.toLowerCase();
    const metadata = request.agentAccess?.threads?.metadata;
    return formatThread(await copy({ ...agents, logger: request.log }, threadId, metadata));
  },
});

export const threadOperations = [
  createThread,
  searchThreads,
  countThreads,
  pruneThreads,
  getThread,
  updateThread,
  deleteThread,
  copyThread,
  patchThreadState,
];
