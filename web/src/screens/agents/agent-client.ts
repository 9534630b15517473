import { createContext, useContext } from 'react';
import { fillPath, send } from '../../api/client.ts';
import { readEvents, type ServerEvent } from '../../api/event-stream.ts';
import { parseExact } from '../../components/values/exact-json.ts';

/** A header that authenticates requests to a deployment with authentication of its own. */
export interface OwnHeader {
  readonly name: string;
  readonly value: string;
}

export interface AgentRequest {
  readonly body?: unknown;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly signal?: AbortSignal;
  /** Id of the last event that arrived, to continue a stream. */
  readonly lastEventId?: string | undefined;
}

/** Client of the agent server of one deployment. Requests carry the session, or the header that the viewer entered. */
export interface AgentClient {
  readonly deploymentId: string;
  /**
   * Start of the query keys. It changes when the viewer enters a header, so that cached data of another user is not
   * shown.
   */
  readonly key: readonly unknown[];
  request<T>(method: string, path: string, options?: AgentRequest): Promise<T>;
  stream(method: string, path: string, options?: AgentRequest): Promise<AgentStream>;
}

export interface AgentStream {
  /** Path of the run, such as `/threads/…/runs/…`. */
  readonly runPath: string | undefined;
  readonly events: AsyncGenerator<ServerEvent, void>;
}

export function createAgentClient(
  { id, slug }: { readonly id: string; readonly slug: string },
  header: OwnHeader | undefined,
  version: number,
): AgentClient {
  const open = (method: string, path: string, { body, query, signal, lastEventId }: AgentRequest, accept: string) =>
    send(method, `/deployments/${slug}${fillPath(path, {}, query)}`, {
      body,
      signal,
      deployment: header ? 'own' : 'session',
      headers: {
        accept,
        ...(header && { [header.name]: header.value }),
        ...(lastEventId !== undefined && { 'last-event-id': lastEventId }),
      },
    });
  return {
    deploymentId: id,
    key: ['agents', id, version],
    async request<T>(method: string, path: string, options: AgentRequest = {}) {
      const text = await (await open(method, path, options, 'application/json')).text();
      return (text === '' ? undefined : parseExact(text)) as T;
    },
    async stream(method, path, options = {}) {
      const response = await open(method, path, options, 'text/event-stream');
      const [runPath] =
        /(?:\/threads\/[\w-]+)?\/runs\/[\w-]+$/.exec(response.headers.get('content-location') ?? '') ?? [];
      return { runPath, events: readEvents(response) };
    },
  };
}

export const AgentClientContext = createContext<AgentClient | undefined>(undefined);

/** Returns the client of the deployment that is shown. For components within {@link AgentClientContext} only. */
export function useAgentClient(): AgentClient {
  return useContext(AgentClientContext) as AgentClient;
}
