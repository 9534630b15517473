import { Type } from 'typebox';
import { createConnection, deleteConnection, listConnections } from '../../pipelines/oauth/agent-connections.ts';
import { chooseUser } from '../../pipelines/oauth/authenticate.ts';
import { nullable, Text, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { UserQuery } from './oauth-user.ts';

const readAccess = { permission: 'oauth:read', tenantScope: 'workspace' } as const;
const writeAccess = { permission: 'oauth:authenticate', tenantScope: 'workspace' } as const;

const AgentId = () => Text({ minLength: 1, maxLength: 255 });
const path = '/v2/auth/agents/:agent_id/connections';
const params = Type.Object({ agent_id: AgentId() });

const Connection = Type.Object({
  id: Uuid(),
  agent_id: Type.String(),
  oauth_token_id: Uuid(),
  provider_id: Type.String(),
  provider_account_label: nullable(Type.String()),
  scopes: Type.Array(Type.String()),
  expires_at: nullable(Timestamp()),
  created_by: Type.String(),
  created_at: Timestamp(),
});

const listAgentConnections = defineOperation({
  operationId: 'listAgentConnections',
  method: 'GET',
  path,
  summary: 'List the OAuth tokens of a user that an agent is connected with',
  access: readAccess,
  errors: ['ANSWER_TOO_LARGE', 'NOT_FOUND'],
  schema: { params, query: UserQuery, response: { 200: Type.Object({ data: Type.Array(Connection) }) } },
  handler: async ({ caller, params: { agent_id }, query, services: { oauth } }) => ({
    data: await listConnections(oauth, await chooseUser(oauth, caller, query), agent_id),
  }),
});

const createAgentConnection = defineOperation({
  operationId: 'createAgentConnection',
  method: 'POST',
  path,
  summary: 'Connect an agent with an OAuth token of a user',
  description: 'The agent then uses this token before others. Returns the connection if there is one already.',
  access: writeAccess,
  errors: ['NOT_FOUND', 'LIMIT_REACHED'],
  schema: {
    params,
    query: UserQuery,
    body: Type.Object({ oauth_token_id: Uuid() }),
    response: { 201: Connection },
  },
  handler: async ({ caller, params: { agent_id }, query, body, services: { oauth } }) => {
    const target = { agentId: agent_id, tokenId: body.oauth_token_id };
    return createConnection(oauth, await chooseUser(oauth, caller, query), target);
  },
});

const deleteAgentConnection = defineOperation({
  operationId: 'deleteAgentConnection',
  method: 'DELETE',
  path: `${path}/:connection_id`,
  summary: 'End the connection of an agent with an OAuth token',
  description: 'An agent cannot use a token that was granted for it without the connection.',
  access: writeAccess,
  errors: ['NOT_FOUND'],
  schema: {
    params: Type.Object({ agent_id: AgentId(), connection_id: Uuid() }),
    query: UserQuery,
    response: { 204: Type.Null() },
  },
  handler: async ({ caller, params: { agent_id, connection_id }, query, services: { oauth } }) => {
    const connection = { agentId: agent_id, connectionId: connection_id };
    await deleteConnection(oauth, await chooseUser(oauth, caller, query), connection);
    return null;
  },
});

export const connectionOperations = [listAgentConnections, createAgentConnection, deleteAgentConnection];
