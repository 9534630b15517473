import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { ExportReference } from '../graphs/graphs-file.ts';
import { importExport } from '../graphs/load-graph.ts';
import { formatProjectError } from '../workers/serialized-error.ts';
import type { AuthIdentity, AuthorizationRequest, AuthRejection, AuthRequest, AuthVerdict } from './agent-user.ts';

type Handler = (input: object) => unknown;

/** The custom authentication of a project. It runs code of the project, so use it only in the auth process. */
export interface LoadedAuth {
  identify(request: AuthRequest): Promise<AuthIdentity>;
  authorize(request: AuthorizationRequest): Promise<AuthVerdict>;
}

/**
 * Imports the `Auth` object that `auth.path` names. Detects the object by its shape, not by its class, because the
 * project can have its own copy of the library. Source: `@langchain/langgraph-sdk/auth`, which keys handlers by event,
 * resource, `*:action` and `*`.
 *
 * @throws AUTH_UNUSABLE if the export is not an `Auth` with an `authenticate` handler; any error of the import.
 */
export async function loadAuth(source: ExportReference): Promise<LoadedAuth> {
  const exported = await importExport(source);
  const handlers = findHandlers(exported);
  if (handlers === undefined) {
    throw runlakeError('AUTH_UNUSABLE', {
      reason: `the export '${source.name}' of ${source.path} is not an Auth of @langchain/langgraph-sdk/auth`,
    });
  }
  const { authenticate, callbacks = {} } = handlers;
  if (typeof authenticate !== 'function') {
    throw runlakeError('AUTH_UNUSABLE', {
      reason: `the Auth '${source.name}' of ${source.path} has no authenticate handler`,
    });
  }
  return {
    async identify({ method, url, headers }) {
      try {
        return parseIdentity(
          await authenticate(new Request(url, { method, headers: headers.map((pair) => [...pair]) })),
        );
      } catch (error) {
        return {
          rejection: toRejection(error, 401, 'The request is not authenticated.'),
          reason: formatProjectError(error),
        };
      }
    },
    async authorize({ event, value, user }) {
      const [resource = '', action = ''] = event.split(':');
      const handler = [event, resource, `*:${action}`, '*'].map((name) => callbacks[name]).find((one) => one);
      if (handler === undefined) return { allowed: true, filter: null, value };
      try {
        const decision = await handler({ event, resource, action, value, user, permissions: user.permissions });
        if (decision === false) return { allowed: false, rejection: { status: 403, message: 'Forbidden' } };
        return { allowed: true, filter: decision === true ? null : (decision ?? null), value };
      } catch (error) {
        return { allowed: false, rejection: toRejection(error, 403, 'Forbidden') };
      }
    },
  };
}

function findHandlers(exported: unknown): { authenticate?: Handler; callbacks?: Record<string, Handler> } | undefined {
  if (typeof exported !== 'object' || exported === null || !('~handlerCache' in exported)) return undefined;
  return exported['~handlerCache'] as { authenticate?: Handler; callbacks?: Record<string, Handler> };
}

/**
 * Accepts an identity as text, or an object with `identity`. Refuses anything else, and users with `is_authenticated:
 * false`.
 */
function parseIdentity(handlerResult: unknown): AuthIdentity {
  const fields =
    typeof handlerResult === 'string'
      ? { identity: handlerResult }
      : (handlerResult as Record<string, unknown> | null | undefined);
  const identity = fields?.identity;
  if (
    typeof identity !== 'string' ||
    identity === '' ||
    (fields as { is_authenticated?: unknown }).is_authenticated === false
  ) {
    return { rejection: { status: 401, message: 'The request is not authenticated.' } };
  }
  const { permissions, display_name: name, ...rest } = fields as Record<string, unknown>;
  const granted = Array.isArray(permissions) ? permissions.filter((one) => typeof one === 'string') : [];
  return {
    user: {
      ...rest,
      identity,
      display_name: typeof name === 'string' ? name : identity,
      is_authenticated: true,
      permissions: granted,
    },
  };
}

/** Converts an error to a rejection with the status and text of an HTTPException. Hides the text of any other error. */
function toRejection(error: unknown, status: number, message: string): AuthRejection {
  if (error instanceof Error && 'status' in error && typeof error.status === 'number') {
    const chosen = error.status >= 400 && error.status <= 599 ? error.status : status;
    return { status: chosen, message: error.message || message };
  }
  return { status, message };
}
