import '../access/agent-access.ts';
import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { searchItems } from '../../../pipelines/agents/store/search-items.ts';
import { JsonObject, optional } from '../../server/formats.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { Closed, Limit, Offset } from '../agent-schema.ts';
import { FoundItem, getStoreRules, Labels, RefreshTtl } from './item-schema.ts';

export const searchStoreItems = defineAgentOperation({
  operationId: 'searchStoreItems',
  method: 'POST',
  path: '/store/items/search',
  tag: 'store',
  summary: 'Search items below a prefix, last updated first, or most similar to a query first',
  access: reads,
  errors: [
    'ANSWER_TOO_LARGE',
    'STORE_FILTER_INVALID',
    'STORE_WITHOUT_INDEX',
    'STORE_TOO_MANY_VECTORS',
    'STORE_EMBEDDER_UNUSABLE',
    'GRAPH_WORKER_BUSY',
  ],
  schema: {
    body: Closed({
      namespace_prefix: optional(Labels('First labels of the namespaces. Empty: all items.')),
      filter: optional(
        JsonObject({
          description: 'Fields of the value, compared for equality or with $eq, $ne, $gt, $gte, $lt, $lte.',
          // Each field is a condition of the statement; thousands of them keep Postgres busy for a minute.
          maxProperties: 100,
        }),
      ),
      limit: Limit(),
      offset: Offset(),
      query: optional(Type.String({ maxLength: 100_000, description: 'Text for similarity search.' })),
      refresh_ttl: RefreshTtl(),
    }),
    response: { 200: Type.Object({ items: Type.Array(FoundItem) }) },
  },
  handler: async ({ body, services: { agents }, request }) => {
    const rules = getStoreRules(agents);
    if (body.query && rules.index === undefined) throw runlakeError('STORE_WITHOUT_INDEX', { field: 'query' });
    const items = await searchItems(agents.database, agents.deploymentId, rules, {
      namespacePrefix: body.namespace_prefix ?? [],
      filter: body.filter ?? undefined,
      query: body.query ?? undefined,
      limit: body.limit ?? 10,
      offset: body.offset ?? 0,
      required: request.agentAccess?.items,
      refresh: body.refresh_ttl ?? rules.refreshOnRead,
      limitBytes: agents.config.maxPageBytes,
    });
    return { items };
  },
});
