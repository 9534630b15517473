import { operations as allOperations } from '../../api/main/operations.ts';
import type { Operation } from '../../api/server/operation.ts';
import { errorsOfAnyRequest, listErrors } from '../../api/server/operation-errors.ts';
import type { RunlakeError } from '../../infra/errors/runlake-error.ts';
import { createLogger, type Logger } from '../../infra/telemetry/logger.ts';

export interface ErrorWatch {
  /** Silent logger for the server. */
  readonly logger: Logger;
  /** @throws if an operation responded with an error that its description does not list. */
  check(): void;
}

/** Records the errors that the server logs, and compares them with those that each operation declares. */
export function watchErrors(operations: readonly Operation[] = allOperations): ErrorWatch {
  const undeclared = new Set<string>();
  const declared = new Map(
    operations.map((operation) => {
      const listed = listErrors(operation, { acceptsSessions: true });
      // A call of a tool that takes too long ends its request in this process, whose response nobody gets.
      return [operation.operationId, new Set([...listed, ...errorsOfAnyRequest, 'TOOL_TIMEOUT'])];
    }),
  );
  const recordError = (line: { err?: Partial<RunlakeError>; operation?: string }) => {
    const code = line.err?.code;
    const codes = line.operation === undefined ? undefined : declared.get(line.operation);
    if (code !== undefined && codes?.has(code) === false) undeclared.add(`${line.operation}: ${code}`);
  };
  const logger: Logger = Object.create(createLogger('silent', 'test'), {
    debug: { value: recordError, writable: true },
    warn: { value: recordError, writable: true },
    error: { value: recordError, writable: true },
  });
  return {
    logger,
    check() {
      if (undeclared.size > 0) throw new Error(`errors that no description lists: ${[...undeclared].join(', ')}`);
    },
  };
}
