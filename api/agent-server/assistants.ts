import { Type } from 'typebox';
import { dropNullish } from '../../infra/collections/drop-nullish.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { toJsonObject } from '../../infra/json/json-value.ts';
import {
  type Assistant as AssistantRecord,
  computeSystemAssistantId,
  resolveAssistant,
  resolveAssistantId,
} from '../../pipelines/agents/assistants/assistant.ts';
import {
  countAssistants as count,
  listAssistantVersions as listVersions,
  searchAssistants as search,
} from '../../pipelines/agents/assistants/read-assistants.ts';
import {
  createAssistant as create,
  deleteAssistant as remove,
  setAssistantVersion as setVersion,
  updateAssistant as update,
} from '../../pipelines/agents/assistants/write-assistants.ts';
import { JsonObject, nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { createChangeRule, createCreationRule, createSearchRule, type Rule, type RuleInput } from './access/rules.ts';
import { type Agents, defineAgentOperation, readAccess, runAccess } from './agent-operation.ts';
import {
  AssistantParams,
  buildEmptyPage,
  buildPage,
  ClosedObject,
  GraphConfigBody,
  JsonValue,
  Limit,
  Offset,
  pageDescription,
  readSearch,
  searchFields,
  selectFields,
} from './agent-schema.ts';

const versionFields = {
  assistant_id: Uuid(),
  graph_id: Type.String(),
  name: Type.String(),
  description: nullable(Type.String()),
  config: JsonObject({ description: 'RunnableConfig: tags, metadata, recursion_limit, configurable.' }),
  context: JsonValue(),
  metadata: JsonObject(),
  version: Type.Integer(),
  created_at: Timestamp(),
};

const AssistantVersion = Type.Object(versionFields);
const Assistant = Type.Object({ ...versionFields, updated_at: Timestamp() });
/** An assistant in a response. If the request has `select`, the assistant has only the selected fields. */
const SelectedAssistant = Type.Partial(Assistant);

const changeableFields = {
  config: optional(GraphConfigBody),
  context: Type.Optional(JsonValue({ description: 'Context of each run of the assistant.' })),
  metadata: optional(JsonObject()),
  name: optional(Text({ maxLength: 10_000 })),
  description: optional(Text({ maxLength: 100_000 })),
};

const readId = ({ params }: RuleInput) => resolveAssistantId(params.assistant_id as string);
const createNotFoundError = (assistant: string) =>
  runlakeError('ASSISTANT_NOT_FOUND', { assistant: assistant.slice(0, 100) });

export const createAssistantRule =
  (event: 'assistants:read' | 'assistants:update'): Rule =>
  async (input, authorizer, proceed) => {
    const id = readId(input);
    const value = { assistant_id: id, ...toJsonObject(input.body) };
    await authorizer.authorizeRow(event, id, value, createNotFoundError(input.params.assistant_id ?? id));
    return proceed();
  };

/** Reads an assistant. @throws ASSISTANT_NOT_FOUND */
export function readAssistant(
  { database, deploymentId }: Agents,
  { assistant_id: id }: { readonly assistant_id: string },
) {
  return resolveAssistant(database, deploymentId, id);
}

/** Checks that a graph exists. @throws GRAPH_NOT_FOUND, which lists the existing graphs. */
function requireGraph({ graphs }: Pick<Agents, 'graphs'>, graphId: string): void {
  if (Object.hasOwn(graphs, graphId)) return;
  throw runlakeError('GRAPH_NOT_FOUND', { graph: graphId, graphs: Object.keys(graphs).sort().join(', ') });
}

/** Maximum number of assistants per deployment, including the assistants that the server creates for graphs. */
const maxAssistants = 100_000;

const createAssistant = defineAgentOperation({
  operationId: 'createAssistant',
  method: 'POST',
  path: '/assistants',
  summary: 'Create an assistant, which is a graph with a configuration',
  access: runAccess,
  rule: createCreationRule('assistants:create', (assistant) => runlakeError('ASSISTANT_EXISTS', { assistant })),
  errors: ['GRAPH_NOT_FOUND', 'ASSISTANT_EXISTS', 'LIMIT_REACHED'],
  schema: {
    body: ClosedObject({
      graph_id: Type.String({ minLength: 1 }),
      assistant_id: optional(Uuid()),
      if_exists: optional(OneOf(['raise', 'do_nothing'])),
      ...changeableFields,
    }),
    response: { 200: Assistant },
  },
  handler: async ({ body, services: { agents } }) => {
    const { graph_id: graphId, assistant_id: assistantId, config, context, metadata, name, description } = body;
    requireGraph(agents, graphId);
    const assistant = {
      graphId,
      ifExists: body.if_exists ?? ('raise' as const),
      ...dropNullish({ assistantId, config, metadata, name, description }),
      ...(context !== undefined && { context }),
    };
    return create(agents.database, agents.deploymentId, assistant, { maxAssistants });
  },
});

const assistantFilter = {
  graph_id: optional(Text()),
  name: optional(Text({ description: 'Part of the name, case-insensitive.' })),
  metadata: optional(JsonObject({ description: 'Only assistants whose metadata contains it.' })),
};

export const searchAssistants = defineAgentOperation({
  operationId: 'searchAssistants',
  method: 'POST',
  path: '/assistants/search',
  summary: 'Search assistants, newest first',
  description: pageDescription,
  access: readAccess,
  rule: createSearchRule('assistants:search', buildEmptyPage),
  errors: ['ANSWER_TOO_LARGE'],
  schema: {
    body: ClosedObject({
      ...assistantFilter,
      ...searchFields(
        ['assistant_id', 'graph_id', 'name', 'created_at', 'updated_at'],
        [...Object.keys(versionFields), 'updated_at'],
      ),
    }),
    response: { 200: Type.Array(SelectedAssistant) },
  },
  handler: async ({ body, services: { agents } }) => {
    const { select, metadata, name, graph_id: graphId } = body;
    const page = readSearch(body);
    const { assistants, total } = await search(agents.database, agents.deploymentId, {
      ...dropNullish({ graphId, name, metadata }),
      ...page,
      select: select as (keyof AssistantRecord)[] | null | undefined,
      limitBytes: agents.config.maxPageBytes,
    });
    const rows = assistants.map((assistant) => selectFields(assistant, select));
    return buildPage(rows, { total, offset: page.offset });
  },
});

const countAssistants = defineAgentOperation({
  operationId: 'countAssistants',
  method: 'POST',
  path: '/assistants/count',
  summary: 'Count matching assistants',
  access: readAccess,
  rule: createSearchRule('assistants:search', () => 0),
  schema: { body: ClosedObject(assistantFilter), response: { 200: Type.Integer() } },
  handler: async ({ body: { graph_id: graphId, name, metadata }, services: { agents } }) =>
    count(agents.database, agents.deploymentId, dropNullish({ graphId, name, metadata })),
});

const getAssistant = defineAgentOperation({
  operationId: 'getAssistant',
  method: 'GET',
  path: '/assistants/:assistant_id',
  summary: 'Get an assistant in its active version',
  access: readAccess,
  rule: createAssistantRule('assistants:read'),
  errors: ['ASSISTANT_NOT_FOUND'],
  schema: { params: AssistantParams, response: { 200: Assistant } },
  handler: async ({ params, services: { agents } }) => readAssistant(agents, params),
});

const updateAssistant = defineAgentOperation({
  operationId: 'updateAssistant',
  method: 'PATCH',
  path: '/assistants/:assistant_id',
  summary: 'Update an assistant, which creates and activates a new version',
  description: 'Metadata is merged; other fields are replaced.',
  access: runAccess,
  rule: createChangeRule('assistants:update', readId, createNotFoundError),
  errors: ['ASSISTANT_NOT_FOUND', 'GRAPH_NOT_FOUND'],
  schema: {
    params: AssistantParams,
    body: ClosedObject({ graph_id: optional(Type.String({ minLength: 1 })), ...changeableFields }),
    response: { 200: Assistant },
  },
  handler: async ({ params, body, services: { agents } }) => {
    const { graph_id: graphId, config, context, metadata, name, description } = body;
    if (graphId) requireGraph(agents, graphId);
    return update(agents.database, agents.deploymentId, params.assistant_id, {
      ...dropNullish({ graphId, config, metadata, name }),
      ...(description !== undefined && { description }),
      ...(context !== undefined && { context }),
    });
  },
});

const deleteAssistant = defineAgentOperation({
  operationId: 'deleteAssistant',
  method: 'DELETE',
  path: '/assistants/:assistant_id',
  summary: 'Delete an assistant with its versions and runs',
  description: 'The assistant that the server has created for a graph is created again at once, as it was first.',
  access: runAccess,
  rule: async (input, authorizer, proceed) => {
    const id = readId(input);
    await authorizer.authorizeRow('assistants:delete', id, { assistant_id: id }, createNotFoundError(id));
    // Deleting an assistant also deletes its runs on all threads.
    const { required } = await authorizer.allow('threads:delete', { thread_id: null });
    if (required !== undefined && !(await authorizer.rows.ownsAssistantThreads(id, required))) {
      throw runlakeError('AUTH_FORBIDDEN', { reason: 'The assistant has runs on threads that you must not delete.' });
    }
    return proceed();
  },
  errors: ['ASSISTANT_NOT_FOUND'],
  schema: {
    params: AssistantParams,
    query: Type.Object({
      delete_threads: Type.Boolean({
        default: false,
        description: 'Also delete the threads whose last run was of this assistant.',
      }),
    }),
    // The JavaScript client expects a JSON body if the status is 200.
    response: { 200: Type.Array(Type.String(), { description: 'Id of the deleted assistant.' }) },
  },
  handler: async ({ params, query, services: { agents } }) => {
    const { assistant_id: id } = await readAssistant(agents, params);
    const found = Object.entries(agents.graphs).find(([graphId]) => computeSystemAssistantId(graphId) === id);
    const served = found && { graphId: found[0], ...found[1] };
    await remove(agents.database, agents.deploymentId, id, { deleteThreads: query.delete_threads, served });
    return [id];
  },
});

const listAssistantVersions = defineAgentOperation({
  operationId: 'listAssistantVersions',
  method: 'POST',
  path: '/assistants/:assistant_id/versions',
  summary: 'List the versions of an assistant, newest first',
  access: readAccess,
  rule: createAssistantRule('assistants:read'),
  errors: ['ASSISTANT_NOT_FOUND', 'ANSWER_TOO_LARGE'],
  schema: {
    params: AssistantParams,
    body: ClosedObject({ metadata: optional(JsonObject()), limit: Limit(), offset: Offset() }),
    response: { 200: Type.Array(AssistantVersion) },
  },
  handler: async ({ params, body: { metadata, limit, offset }, services: { agents } }) => {
    const { database, deploymentId, config } = agents;
    const { assistant_id: id } = await readAssistant(agents, params);
    const page = { limit: limit ?? 10, offset: offset ?? 0, limitBytes: config.maxPageBytes };
    return listVersions(database, deploymentId, id, { ...dropNullish({ metadata }), ...page });
  },
});

const setAssistantVersion = defineAgentOperation({
  operationId: 'setAssistantVersion',
  method: 'POST',
  path: '/assistants/:assistant_id/latest',
  summary: 'Activate a version of an assistant',
  access: runAccess,
  rule: createAssistantRule('assistants:update'),
  errors: ['ASSISTANT_NOT_FOUND'],
  schema: {
    params: AssistantParams,
    body: ClosedObject({ version: Type.Integer({ minimum: 1, maximum: 2_147_483_647 }) }),
    response: { 200: Assistant },
  },
  handler: async ({ params, body, services: { agents } }) => {
    const { assistant_id: id } = await readAssistant(agents, params);
    return setVersion(agents.database, agents.deploymentId, id, body.version);
  },
});

export const assistantOperations = [
  createAssistant,
  searchAssistants,
  countAssistants,
  getAssistant,
  updateAssistant,
  deleteAssistant,
  listAssistantVersions,
  setAssistantVersion,
];
