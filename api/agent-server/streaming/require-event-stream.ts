import type { FastifyRequest } from 'fastify';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';

export const eventStreamType = 'text/event-stream';

/** Refuses clients that do not accept the response type. Source: RFC 9110 12.5.1. @throws EVENT_STREAM_NOT_ACCEPTED */
export function requireEventStream({ headers: { accept } }: FastifyRequest): void {
  if (accept === undefined || acceptsEventStream(accept)) return;
  throw runlakeError('EVENT_STREAM_NOT_ACCEPTED', { accept: accept.slice(0, 200) });
}

export function acceptsEventStream(accept: string): boolean {
  return accept.split(',').some(acceptsEvents);
}

function acceptsEvents(range: string): boolean {
  const [type = '', ...parameters] = range.split(';').map((part) => part.trim().toLowerCase());
  return (
    ['', '*/*', 'text/*', eventStreamType].includes(type) && !parameters.some((part) => /^q=0(?:\.0*)?$/.test(part))
  );
}
