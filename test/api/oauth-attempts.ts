import { type Attempt, own } from './attempt.ts';
import type { ApiUnderTest, OrganizationUnderTest } from './start-api.ts';

/** The names contain no word of the victim, because responses may repeat the names of a request. */
const provider = 'victims-mail';
const user = 'user_id=anna';
const connectionsUrl = '/v2/auth/agents/triage/connections';

export interface OAuthVictim {
  readonly tokenId: string;
  readonly connectionId: string;
  readonly authenticationId: string;
  readonly state: string;
}

/** Attempts to use providers, tokens and authentications of another workspace or organisation, by operation. */
export const oauthAttempts: Readonly<Record<string, (victim: OAuthVictim) => Attempt>> = {
  authenticate: ({ tokenId }) => ({
    url: '/v2/auth/authenticate',
    payload: { user_id: 'anna', provider, scopes: [], token_id: tokenId },
  }),
  waitForAuthentication: ({ authenticationId }) => ({
    url: `/v2/auth/wait/${authenticationId}?timeout=0`,
    answers: own,
  }),
  finalizeAuthentication: ({ state }) => ({
    url: `/v2/auth/callback/${provider}`,
    payload: { state, code: 'stolen' },
    answers: [400],
  }),
  listOAuthProviders: () => ({ url: '/v2/auth/providers', answers: own }),
  createOAuthProvider: () => ({
    url: '/v2/auth/providers',
    payload: {
      ...{ provider_id: 'stolen', name: 'stolen', client_id: 'stolen' },
      ...{ auth_url: 'https://example.com/auth', token_url: 'https://example.com/token' },
    },
    answers: [200, 403],
  }),
  createMcpOAuthProvider: () => ({
    url: '/v2/auth/providers/mcp-discover',
    payload: { provider_id: 'stolen-too', name: 'stolen', mcp_server_url: 'https://127.0.0.1:9/mcp' },
    answers: [400, 403],
  }),
  // Providers belong to the organisation, so keys of its other workspaces may read them.
  getOAuthProvider: () => ({ url: `/v2/auth/providers/${provider}`, answers: [200, 404] }),
  updateOAuthProvider: () => ({
    url: `/v2/auth/providers/${provider}`,
    payload: { token_url: 'https://example.com/stolen' },
  }),
  deleteOAuthProvider: () => ({ url: `/v2/auth/providers/${provider}` }),
  listOAuthTokens: () => ({ url: `/v2/auth/tokens?${user}`, answers: own }),
  oauthTokenExists: () => ({ url: `/v2/auth/tokens/exists?${user}&provider_id=${provider}`, answers: own }),
  getOAuthToken: ({ tokenId }) => ({ url: `/v2/auth/tokens/${tokenId}?${user}` }),
  updateOAuthToken: ({ tokenId }) => ({
    url: `/v2/auth/tokens/${tokenId}/metadata?${user}`,
    payload: { provider_account_label: 'stolen' },
  }),
  deleteOAuthToken: ({ tokenId }) => ({ url: `/v2/auth/tokens/${tokenId}?${user}` }),
  deleteOAuthTokens: () => ({ url: `/v2/auth/tokens?${user}&provider_id=${provider}`, answers: own }),
  slackTokenExists: () => ({ url: '/v2/auth/tokens/workspace/slack/exists', answers: own }),
  deleteSlackTokens: () => ({ url: '/v2/auth/tokens/workspace/slack', answers: [200, 403] }),
  listAgentConnections: () => ({ url: `${connectionsUrl}?${user}`, answers: own }),
  createAgentConnection: ({ tokenId }) => ({ url: `${connectionsUrl}?${user}`, payload: { oauth_token_id: tokenId } }),
  deleteAgentConnection: ({ connectionId }) => ({ url: `${connectionsUrl}/${connectionId}?${user}` }),
};

/** What the victim can read: its providers, tokens and connections. */
export const oauthUrls = ['/v2/auth/providers', `/v2/auth/tokens?${user}`, `${connectionsUrl}?${user}`];

/** Adds a provider, a pending authentication, and a token with a label that is connected with an agent. */
export async function addOAuth(api: ApiUnderTest, { adminKey, workspaceIds }: OrganizationUnderTest) {
  const created = await api.ask(adminKey, 'POST', '/v2/auth/providers', {
    ...{ provider_id: provider, name: 'zebra', client_id: 'zebra', client_secret: 'zebra', provider_type: 'slack' },
    ...{ auth_url: 'https://example.com/auth', token_url: 'https://example.com/token' },
  });
  const pending = await api.ask(adminKey, 'POST', '/v2/auth/authenticate', { user_id: 'anna', provider, scopes: [] });
  const [token] = await api.database.query<{ id: string }>(
    `INSERT INTO oauth_tokens (id, workspace_id, provider, user_id, scopes, sealed_access_token, for_any_agent, is_default, label)
     VALUES (gen_random_uuid(), $1, $2, 'anna', '{okapi}', 'not used', true, true, 'okapi') RETURNING id`,
    [workspaceIds[0], created.body.id],
  );
  const connection = await api.ask(adminKey, 'POST', `${connectionsUrl}?${user}`, { oauth_token_id: token?.id });
  const victim: OAuthVictim = {
    tokenId: token?.id ?? '',
    connectionId: connection.body.id,
    authenticationId: pending.body.auth_id,
    state: new URL(pending.body.url).searchParams.get('state') ?? '',
  };
  return victim;
}
