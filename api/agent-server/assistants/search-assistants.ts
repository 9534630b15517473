import { Type } from 'typebox';
import type { Assistant } from '../../../pipelines/agents/assistants/assistant.ts';
import { searchAssistants as search } from '../../../pipelines/agents/assistants/read-assistants.ts';
import { JsonObject, optional, Text } from '../../server/formats.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { buildPage, Closed, given, Limit, Offset, SortOrder, selectFields, words } from '../agent-schema.ts';
import { assistantFields, SelectedAssistant } from './assistant-schema.ts';

export const assistantFilter = {
  graph_id: optional(Text()),
  name: optional(Text({ description: 'Part of the name, case-insensitive.' })),
  metadata: optional(JsonObject({ description: 'Only assistants whose metadata contains it.' })),
};

export const searchAssistants = defineAgentOperation({
  operationId: 'searchAssistants',
  method: 'POST',
  path: '/assistants/search',
  tag: 'assistants',
  summary: 'Search assistants, newest first',
  description:
    '`X-Pagination-Total` is the total number, `X-Pagination-Next` the next offset (absent on the last page).',
  access: reads,
  errors: ['ANSWER_TOO_LARGE'],
  schema: {
    body: Closed({
      ...assistantFilter,
      limit: Limit(),
      offset: Offset(),
      sort_by: optional(words(['assistant_id', 'graph_id', 'name', 'created_at', 'updated_at'])),
      sort_order: SortOrder(),
      select: optional(Type.Array(words(assistantFields), { description: 'Fields of the response.' })),
    }),
    response: { 200: Type.Array(SelectedAssistant) },
  },
  handler: async ({ body, services: { agents } }) => {
    const { limit, offset, select } = { ...body, limit: body.limit ?? 10, offset: body.offset ?? 0 };
    const { assistants, total } = await search(agents.database, agents.deploymentId, {
      ...given({ graphId: body.graph_id, name: body.name, metadata: body.metadata }),
      sortBy: body.sort_by ?? 'created_at',
      sortOrder: body.sort_order ?? 'desc',
      limit,
      offset,
      select: select as (keyof Assistant)[] | null | undefined,
      limitBytes: agents.config.maxPageBytes,
    });
    return buildPage(
      assistants.map((assistant) => selectFields(assistant, select)),
      { total, offset },
    );
  },
});
