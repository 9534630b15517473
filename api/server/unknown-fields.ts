import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';

/** Builds the error for unknown fields of a body or a query: at most eight, in the form of SPEC 2.3. */
export function unknownFields(location: 'body' | 'query', names: readonly string[]): RunlakeError {
  const fields = names
    .slice(0, 8)
    .map((name) => ({ loc: [location, name], msg: 'Field not known', type: 'extra_forbidden' }));
  return runlakeError('INVALID_REQUEST', {}, { fields });
}
