import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { putItems } from '../../../pipelines/agents/store/put-items.ts';
import { JsonObject, optional } from '../../server/formats.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { Closed } from '../agent-schema.ts';
import { getStoreRules, Key, Labels } from './item-schema.ts';

export const putStoreItem = defineAgentOperation({
  operationId: 'putStoreItem',
  method: 'PUT',
  path: '/store/items',
  tag: 'store',
  summary: 'Store an item',
  access: runs,
  errors: [
    'STORE_ITEM_NOT_FOUND',
    'STORE_NAMESPACE_INVALID',
    'STORE_KEY_INVALID',
    'STORE_WITHOUT_INDEX',
    'STORE_EMBEDDER_UNUSABLE',
    'GRAPH_WORKER_BUSY',
  ],
  schema: {
    body: Closed({
      namespace: Labels('Labels, which must not be empty or contain a dot.'),
      key: Key(),
      value: JsonObject({ description: 'Replaces an existing value.' }),
      index: optional(
        Type.Union([
          Type.Literal(false),
          Type.Array(Type.String({ minLength: 1, maxLength: 1_000 }), { maxItems: 100 }),
        ]),
        { description: 'Paths of the texts to index, in place of the configured paths. false: do not index.' },
      ),
      ttl: optional(Type.Number({ exclusiveMinimum: 0, maximum: 525_600_000 }), {
        description: 'TTL in minutes. Default: the setting in the langgraph.json, otherwise none.',
      }),
    }),
    response: { 204: Type.Null() },
  },
  handler: async ({ body, services: { agents } }) => {
    const { index, ttl, ...item } = body;
    const rules = getStoreRules(agents);
    if (Array.isArray(index) && rules.index === undefined)
      throw runlakeError('STORE_WITHOUT_INDEX', { field: 'index' });
    const put = { ...item, index: index ?? undefined, ttl: ttl ?? undefined };
    await putItems(agents.database, agents.deploymentId, rules, [put]);
    return new Answer({ status: 204 });
  },
});
