/**
 * Tickets authenticate requests of the dashboard to the agent server of a deployment.
 *
 * Invariant: graph code gets neither a session nor a ticket, and a ticket is valid only for its deployment.
 *
 *   1. The proxy of deployments verifies the session and its CSRF token, and that the session has access to the
 *      workspace of the deployment. It replaces both with a ticket.
 *   2. The agent server removes the ticket from the request when it arrives, before any other code reads the headers,
 *      and keeps the id of the session if the ticket is signed, unexpired and for this deployment.
 *   3. The session is looked up by this id as an API key is, also while a response is streamed. Therefore its
 *      permissions are those of its key, and access ends when the key is revoked or the user signs out.
 */
import type { IncomingMessage } from 'node:http';
import { createTokenSigner, type TokenSigner } from '../../infra/signing/token-signer.ts';

export const ticketHeader = 'x-runlake-ticket';

/** Longer than the proxy waits for a replica of a sleeping deployment. */
const ticketSeconds = 120;

export function createTicketSigner(secretKey: string): TokenSigner {
  return createTokenSigner(secretKey, 'deployment tickets');
}

export function signTicket(
  signer: TokenSigner,
  { deploymentId, sessionId }: { readonly deploymentId: string; readonly sessionId: string },
): string {
  return signer.sign(`${deploymentId} ${sessionId}`, nowSeconds() + ticketSeconds);
}

/** Dependencies for verifying tickets. */
export interface TicketReader {
  readonly signer: TokenSigner;
  readonly deploymentId: string;
}

const sessionIds = new WeakMap<IncomingMessage, string>();

/** Step 2. Without `reader`, the ticket is only removed. */
export function takeTicket(message: IncomingMessage, reader: TicketReader | undefined): void {
  const { headers, rawHeaders } = message;
  const ticket = headers[ticketHeader];
  if (ticket === undefined) return;
  delete headers[ticketHeader];
  for (let index = rawHeaders.length - 2; index >= 0; index -= 2)
    if (rawHeaders[index]?.toLowerCase() === ticketHeader) rawHeaders.splice(index, 2);
  const opened = reader?.signer.open(String(ticket), nowSeconds());
  if (opened?.kind !== 'valid') return;
  const [deploymentId, sessionId] = opened.text.split(' ');
  if (deploymentId === reader?.deploymentId && sessionId !== undefined) sessionIds.set(message, sessionId);
}

/** Returns the id of the session whose valid ticket the request had. */
export function findTicketSession(message: IncomingMessage): string | undefined {
  return sessionIds.get(message);
}

function nowSeconds(): number {
  return Math.floor(Date.now() / 1_000);
}
