import type { FastifyRequest } from 'fastify';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { requireSlug } from '../../pipelines/deployments/replicas.ts';
import { identifyCaller } from '../server/authentication.ts';
import type { Services } from '../server/services.ts';
import { checkCsrfToken, readSessionCookie } from '../server/session-cookie.ts';
import { signTicket } from '../server/session-ticket.ts';

export type ExchangeDeps = Pick<Services, 'authenticator' | 'database' | 'ticketSigner' | 'config'>;

const access = { permission: 'agents:read', tenantScope: 'workspace' } as const;

/**
 * Returns the ticket that a replica gets instead of the session of a request; undefined if the request has no session.
 *
 * The session counts only with the CSRF token, for every method, so that links and `<img>` elements on other pages
 * cannot send requests as the user. It does not count if the request has other credentials. Replicas of the drivers
 * `docker` and `kubernetes` never get a ticket: they run code of the owner, which has no key to verify tickets.
 *
 * @throws SESSION_INVALID, CSRF_TOKEN_REQUIRED, FORBIDDEN; DEPLOYMENT_FORBIDDEN if the session has no access to the
 *   workspace of the deployment, or X-Tenant-Id names another one; NOT_FOUND
 */
export async function exchangeSession(
  request: FastifyRequest,
  slug: string,
  { authenticator, database, ticketSigner, config }: ExchangeDeps,
): Promise<string | undefined> {
  const { headers } = request;
  if (headers['x-csrf-token'] === undefined || readSessionCookie(headers) === undefined) return undefined;
  if (headers['x-api-key'] !== undefined || headers.authorization !== undefined) return undefined;
  if (config.deploymentsDriver !== 'process') return undefined;
  const { id: deploymentId, workspaceId } = await requireSlug(database, slug);
  const caller = await identifyCaller(request, access, authenticator, { workspaceId, acceptsSessions: true });
  const { session } = caller ?? {};
  if (session === undefined) return undefined;
  checkCsrfToken(headers, session);
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin') throw runlakeError('CSRF_TOKEN_REQUIRED');
  return signTicket(ticketSigner, { deploymentId, sessionId: session.id });
}
