import { operations } from '../../api/main/operations.ts';
import { errorsOfAnyRequest, listErrors } from '../../api/server/operation-errors.ts';
import { catalogue, type ErrorCode, type ErrorEntry } from '../../infra/errors/catalogue.ts';
import { code, type Page, page, table } from './markdown.ts';

const maxNamed = 4;

export function errorsPage(): Page {
  const rows = Object.entries<ErrorEntry>(catalogue).map(([name, entry]) => [
    code(name),
    String(entry.status),
    entry.class,
    entry.class === 'transient' ? 'yes' : 'no',
    entry.message,
    entry.remedy,
    answeredBy(name as ErrorCode),
  ]);
  return page(
    'errors.md',
    'Errors',
    'infra/errors/catalogue.ts',
    'Every error that Runlake returns, logs or prints. A response contains `code` and `remedy` next to the text: `{"detail": …}`, or ' +
      '`{"error": …}` from ingest; a 422 lists `{loc, msg, type}`. Texts in braces are placeholders for the values of the case.',
    table(
      ['Class', 'Cause', 'What to do'],
      [
        ['caller', 'the request', 'Correct the request; unchanged, it fails again.'],
        ['transient', 'a component is down or busy', 'Send the request again after the time in `Retry-After`.'],
        ['terminal', 'the installation', 'The operator must act.'],
      ],
    ),
    table(['Code', 'Status', 'Class', 'Retry', 'Message', 'Remedy', 'Operations'], rows),
  );
}

/** The operations that return the error. Other errors occur at the start, in commands or in background work. */
function answeredBy(name: ErrorCode): string {
  if (errorsOfAnyRequest.includes(name)) return 'any request';
  const ids = operations
    .filter((operation) => listErrors(operation, { acceptsSessions: true }).includes(name))
    .map(({ operationId }) => operationId);
  if (ids.length === 0) return 'start, commands, log';
  return ids.length > maxNamed ? `${ids.length} operations` : ids.map(code).join(', ');
}
