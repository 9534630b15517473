import { Type } from 'typebox';
import { getItems } from '../../../pipelines/agents/store/get-items.ts';
import { checkNamespace } from '../../../pipelines/agents/store/store-item.ts';
import { nullable } from '../../server/formats.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { Item, rulesOf } from './item-schema.ts';

export const getStoreItem = defineAgentOperation({
  operationId: 'getStoreItem',
  method: 'GET',
  path: '/store/items',
  tag: 'store',
  summary: 'What is remembered under a key; null where there is nothing',
  access: reads,
  errors: ['STORE_NAMESPACE_INVALID', 'STORE_ITEM_NOT_FOUND'],
  schema: {
    query: Type.Object({
      namespace: Type.Array(Type.String({ maxLength: 100_000 }), {
        description: 'Labels with dots between them, or one parameter for each.',
      }),
      key: Type.String({ maxLength: 10_000 }),
      refresh_ttl: Type.Optional(Type.Boolean()),
    }),
    response: { 200: nullable(Item) },
  },
  handler: async ({ query, services: { agents } }) => {
    const namespace = query.namespace.flatMap((labels) => labels.split('.'));
    checkNamespace(namespace);
    const refresh = query.refresh_ttl ?? rulesOf(agents).refreshOnRead;
    const keys = [{ namespace, key: query.key }];
    const [item] = await getItems(agents.database, agents.deploymentId, keys, refresh);
    // Null as JSON: an answer without a body would be one that the clients cannot read.
    return (
      item ?? new Answer({ headers: { 'content-type': 'application/json; charset=utf-8' }, body: Buffer.from('null') })
    );
  },
});
