/**
 * The caller of the tool server: the key, the workspace and the endpoint, from the headers of a request.
 *
 * Without an endpoint, or with the address of this installation, the key belongs to this installation, and tools use
 * its main API in process. Another endpoint must be listed in RUNLAKE_TOOLS_ENDPOINTS; it checks the key.
 */
import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyRequest } from 'fastify';
import { LRUCache } from 'lru-cache';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Authenticator } from '../../pipelines/tenants/authenticate.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import type { CustomAccess } from '../server/api-form.ts';
import { readBearer, readHeader } from '../server/authentication.ts';
import { acceptsKey, type Endpoints, normaliseEndpoint } from './endpoints.ts';
import type { SendToMainApi, ToolCredentials } from './main-api.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set on requests to the tool server that were authenticated. */
    toolCaller?: ToolCaller;
  }
}

export interface ToolCaller {
  /** Identifies key and endpoint. */
  readonly keyId: string;
  readonly credentials: ToolCredentials;
  readonly send: SendToMainApi;
  /** URL of the main API that the tools use. */
  readonly endpoint: string;
}

/** Names of the headers, in order of precedence. */
const keyHeaders = ['langsmith-api-key', 'runlake-api-key', 'x-api-key'];
const workspaceHeaders = ['langsmith-workspace-id', 'runlake-workspace-id', 'x-tenant-id'];
const endpointHeaders = ['langsmith-endpoint', 'runlake-endpoint'];

/** All headers with credentials. CORS allows them for pages of allowed origins. */
export const credentialHeaders = [...keyHeaders, ...workspaceHeaders, ...endpointHeaders, 'authorization'];

/** Returns the first header with a value. */
function readFirst(headers: IncomingHttpHeaders, names: readonly string[]): string | undefined {
  return names.map((name) => readHeader(headers[name])).find((value) => value !== undefined);
}

function readKey(headers: IncomingHttpHeaders): string | undefined {
  return readFirst(headers, keyHeaders) ?? readBearer(headers);
}

export interface CallerDeps {
  readonly authenticator: Authenticator;
  readonly config: Pick<Config, 'toolsEndpoints' | 'publicUrl'>;
  /** The main API of this process, and the URL at which others reach it. */
  readonly own: { readonly send: SendToMainApi; readonly endpoint: string };
  readonly endpoints: Endpoints;
}

/** How long the result of a key check by another endpoint is cached. */
const remoteKeyCacheMs = 60_000;
const remoteKeyTimeoutMs = 10_000;

/** Authenticates the requests to the tool server. */
export function createToolAccess({ authenticator, config, own, endpoints }: CallerDeps): CustomAccess {
  const listed = new Set((config.toolsEndpoints ?? '').split(',').map((each) => normaliseEndpoint(each.trim())));
  const ownEndpoints = new Set([own.endpoint, config.publicUrl ?? own.endpoint].map(identifyEndpoint));
  const acceptedKeys = new LRUCache<string, Caller>({ max: 10_000, ttl: remoteKeyCacheMs });

  async function identifyRemote({ keyId, credentials, send, endpoint }: ToolCaller): Promise<Caller> {
    const known = acceptedKeys.get(keyId);
    if (known !== undefined) return known;
    const signal = AbortSignal.timeout(remoteKeyTimeoutMs);
    if (!(await acceptsKey(send, credentials, { endpoint, signal }))) throw runlakeError('API_KEY_INVALID');
    const caller = createRemoteCaller(keyId);
    acceptedKeys.set(keyId, caller);
    return caller;
  }

  return {
    rechecks: true,
    async identify(request: FastifyRequest): Promise<Caller> {
      const { headers } = request;
      const key = readKey(headers);
      if (key === undefined) throw runlakeError('TOOLS_KEY_MISSING');
      const workspace = readFirst(headers, workspaceHeaders);
      const credentials = { key, workspace };
      const named = readFirst(headers, endpointHeaders);
      const endpoint = named === undefined ? own.endpoint : normaliseEndpoint(named);
      if (named === undefined || ownEndpoints.has(identifyEndpoint(named))) {
        const caller = await authenticator.authenticate({ key, workspace });
        request.toolCaller = { keyId: caller.keyId, credentials, ...own };
        return caller;
      }
      if (endpoint === undefined || !listed.has(endpoint))
        throw runlakeError('TOOLS_ENDPOINT_FORBIDDEN', { endpoint: named.slice(0, 200) });
      const keyId = createHash('sha256').update(`${endpoint} ${key}`).digest('hex');
      const send = endpoints.sendTo(endpoint);
      const remote = { keyId, credentials, send, endpoint };
      const caller = await identifyRemote(remote);
      request.toolCaller = remote;
      return caller;
    },
    handle: (_operation, input, handler) => handler(input),
  };
}

/** Normalises an endpoint for comparison: all names of the loopback interface are the same host. */
function identifyEndpoint(endpoint: string): string | undefined {
  return normaliseEndpoint(endpoint)?.replace(/^(https?:\/\/)(?:localhost|\[::1\])(?=[:/]|$)/, '$1127.0.0.1');
}

/** Creates the caller for a key that another endpoint accepts. It has no permission in this installation. */
function createRemoteCaller(keyId: string): Caller {
  return {
    organizationId: keyId,
    workspaceId: undefined,
    keyId,
    userId: keyId,
    userEmail: '',
    permissions: new Set(),
    organizationWide: false,
    readableWorkspaceIds: new Set(),
    readOnly: true,
    storedPermissions: [],
    expiresAt: undefined,
  };
}
