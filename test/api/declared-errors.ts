import { operations as allOperations } from '../../api/main/operations.ts';
import type { Operation } from '../../api/server/operation.ts';
import { errorsOf, errorsOfAnyRequest } from '../../api/server/operation-errors.ts';
import type { RunlakeError } from '../../infra/errors/runlake-error.ts';
import { createLogger, type Logger } from '../../infra/telemetry/logger.ts';

export interface ErrorWatch {
  /** For the server; silent. */
  readonly logger: Logger;
  /** @throws where an operation answered with an error that its description does not list. */
  check(): void;
}

/** Listens to what the server logs of each error that it answers, and compares it with what the operation declares. */
export function watchErrors(operations: readonly Operation[] = allOperations): ErrorWatch {
  const undeclared = new Set<string>();
  const declared = new Map(
    operations.map((operation) => [operation.operationId, new Set([...errorsOf(operation), ...errorsOfAnyRequest])]),
  );
  const note = (line: { err?: Partial<RunlakeError>; operation?: string }) => {
    const code = line.err?.code;
    const codes = line.operation === undefined ? undefined : declared.get(line.operation);
    if (code !== undefined && codes?.has(code) === false) undeclared.add(`${line.operation}: ${code}`);
  };
  const logger: Logger = Object.create(createLogger('silent', 'test'), {
    debug: { value: note },
    warn: { value: note },
    error: { value: note },
  });
  return {
    logger,
    check() {
      if (undeclared.size > 0) throw new Error(`errors that no description lists: ${[...undeclared].join(', ')}`);
    },
  };
}
