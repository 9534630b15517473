import { operations } from '../../api/main/operations.ts';
import { errorsOf, errorsOfAnyRequest } from '../../api/server/operation-errors.ts';
import { catalogue, type ErrorCode, type ErrorEntry } from '../../infra/errors/catalogue.ts';
import { code, type Page, page, table } from './markdown.ts';

const maxNamed = 4;

export function errorsPage(): Page {
  const rows = Object.entries<ErrorEntry>(catalogue).map(([name, entry]) => [
    code(name),
    String(entry.status),
    entry.class,
    entry.retryable ? 'yes' : 'no',
    entry.message,
    entry.remedy,
    answeredBy(name as ErrorCode),
  ]);
  return page(
    'errors.md',
    'Errors',
    'infra/errors/catalogue.ts',
    'Every error that Runlake answers, logs or prints. An answer carries `code` and `remedy` beside the text: `{"detail": …}`, or ' +
      '`{"error": …}` from ingest; a 422 lists `{loc, msg, type}`. Texts in braces stand for what the case at hand fills in.',
    table(
      ['Class', 'Whose fault', 'What to do'],
      [
        ['caller', 'the request', 'Correct it: sent again unchanged it fails again.'],
        ['transient', 'some part is down or busy', 'Send it again, after the time in `Retry-After`.'],
        ['terminal', 'the installation', 'The operator has to act.'],
      ],
    ),
    table(['Code', 'Status', 'Class', 'Retry', 'Message', 'Remedy', 'Where'], rows),
  );
}

/** Which operations answer with the error; others come up at start, in commands or in work without a request. */
function answeredBy(name: ErrorCode): string {
  if (errorsOfAnyRequest.includes(name)) return 'any request';
  const ids = operations
    .filter((operation) => errorsOf(operation).includes(name))
    .map(({ operationId }) => operationId);
  if (ids.length === 0) return 'start, commands, log';
  return ids.length > maxNamed ? `${ids.length} operations` : ids.map(code).join(', ');
}
