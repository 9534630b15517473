import { Type } from 'typebox';
import {
  checkPaths,
  extractPaths,
  rootsOf,
  searchThreads as search,
} from '../../../pipelines/agents/threads/search-threads.ts';
import { type Thread, threadStatuses } from '../../../pipelines/agents/threads/thread.ts';
import { JsonObject, optional, Uuid } from '../../server/formats.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { buildPage, Closed, given, Limit, Offset, SortOrder, selectFields, words } from '../agent-schema.ts';
import { SelectedThread, threadFields } from './thread-schema.ts';

export const threadFilter = {
  metadata: optional(JsonObject({ description: 'Only threads whose metadata contains it.' })),
  values: optional(JsonObject({ description: 'Only threads whose state contains it.' })),
  status: optional(words(threadStatuses)),
};

export const searchThreads = defineAgentOperation({
  operationId: 'searchThreads',
  method: 'POST',
  path: '/threads/search',
  tag: 'threads',
  summary: 'Search threads, newest first',
  description:
    '`X-Pagination-Total` is the total number, `X-Pagination-Next` the next offset (absent on the last page).',
  access: reads,
  errors: ['ANSWER_TOO_LARGE'],
  schema: {
    body: Closed({
      ...threadFilter,
      ids: optional(Type.Array(Uuid(), { maxItems: 10_000 })),
      limit: Limit(),
      offset: Offset(),
      sort_by: optional(words(['thread_id', 'status', 'created_at', 'updated_at', 'state_updated_at'])),
      sort_order: SortOrder(),
      select: optional(Type.Array(words(threadFields), { description: 'Fields of the response.' })),
      extract: optional(Type.Record(Type.String(), Type.String({ maxLength: 1_000 }), { maxProperties: 10 }), {
        description: 'Names and paths, such as `values.messages[-1].content`, of the values to return as `extracted`.',
      }),
    }),
    response: { 200: Type.Array(SelectedThread) },
  },
  handler: async ({ body, services: { agents } }) => {
    const { offset, select, extract } = { ...body, offset: body.offset ?? 0 };
    if (extract) checkPaths(extract);
    const { threads, total } = await search(agents.database, agents.deploymentId, {
      ...given({ ids: body.ids, metadata: body.metadata, values: body.values, status: body.status }),
      sortBy: body.sort_by ?? 'created_at',
      sortOrder: body.sort_order ?? 'desc',
      limit: body.limit ?? 10,
      offset,
      fields: select ? ([...select, ...rootsOf(extract ?? {})] as (keyof Thread)[]) : undefined,
      limitBytes: agents.config.maxPageBytes,
    });
    return buildPage(
      threads.map((thread) => ({
        ...selectFields(thread, select),
        ...(extract && { extracted: extractPaths(thread, extract) }),
      })),
      { total, offset },
    );
  },
});
