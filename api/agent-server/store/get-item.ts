import { Type } from 'typebox';
import { getItems } from '../../../pipelines/agents/store/get-items.ts';
import { checkNamespace } from '../../../pipelines/agents/store/store-item.ts';
import { nullable } from '../../server/formats.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { getStoreRules, Item } from './item-schema.ts';

export const getStoreItem = defineAgentOperation({
  operationId: 'getStoreItem',
  method: 'GET',
  path: '/store/items',
  tag: 'store',
  summary: 'Get an item, or null if it does not exist',
  access: reads,
  errors: ['STORE_NAMESPACE_INVALID', 'STORE_ITEM_NOT_FOUND'],
  schema: {
    query: Type.Object({
      namespace: Type.Array(Type.String({ maxLength: 100_000 }), {
        description: 'Labels separated by dots, or one parameter per label.',
      }),
      key: Type.String({ maxLength: 10_000 }),
      refresh_ttl: Type.Optional(Type.Boolean()),
    }),
    response: { 200: nullable(Item) },
  },
  handler: async ({ query, services: { agents } }) => {
    const namespace = query.namespace.flatMap((labels) => labels.split('.'));
    checkNamespace(namespace);
    const refresh = query.refresh_ttl ?? getStoreRules(agents).refreshOnRead;
    const keys = [{ namespace, key: query.key }];
    const [item] = await getItems(agents.database, agents.deploymentId, keys, refresh);
    // Sends `null` as JSON, because clients cannot parse an empty body.
    return (
      item ?? new Answer({ headers: { 'content-type': 'application/json; charset=utf-8' }, body: Buffer.from('null') })
    );
  },
});
