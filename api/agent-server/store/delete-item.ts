import { Type } from 'typebox';
import { deleteItems } from '../../../pipelines/agents/store/delete-items.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { Closed } from '../agent-schema.ts';
import { Key, Labels } from './item-schema.ts';

export const deleteStoreItem = defineAgentOperation({
  operationId: 'deleteStoreItem',
  method: 'DELETE',
  path: '/store/items',
  tag: 'store',
  summary: 'Delete an item',
  description: 'Succeeds if the item does not exist.',
  access: runs,
  errors: ['STORE_ITEM_NOT_FOUND'],
  schema: {
    body: Closed({ namespace: Type.Optional(Labels('Labels of the namespace.')), key: Key() }),
    response: { 204: Type.Null() },
  },
  handler: async ({ body, services: { agents } }) => {
    const { namespace = [], key } = body;
    await deleteItems(agents.database, agents.deploymentId, [{ namespace, key }]);
    return new Answer({ status: 204 });
  },
});
