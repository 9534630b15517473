import type { ErrorCode } from '../../infra/errors/catalogue.ts';
import type { RunlakeError } from '../../infra/errors/runlake-error.ts';

/**
 * Errors whose remedy is about a request or an API key, which a command does not have. The message of such an error also
 * says what to do.
 */
const withoutRemedy: ReadonlySet<ErrorCode> = new Set([
  'BAD_REQUEST',
  'CONFLICT',
  'NOT_FOUND',
  'PARAMETER_NOT_SUPPORTED',
]);

/** Returns the message of an error of a command, then its remedy on a line of its own. */
export function errorText({ code, message, remedy }: RunlakeError): string {
  return withoutRemedy.has(code) ? message : `${message}\n${remedy}`;
}
