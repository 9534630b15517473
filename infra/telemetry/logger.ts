import { type Logger as PinoLogger, pino } from 'pino';
import type { Config } from '../config/settings.ts';
import { isRunlakeError } from '../errors/runlake-error.ts';
import { withoutSecrets } from './redact.ts';

export type Logger = Pick<PinoLogger, 'debug' | 'info' | 'warn' | 'error'> & { child(bindings: object): Logger };

/**
 * One line of JSON an event on standard error. Standard output stays free for what a command answers.
 * Secrets are replaced in every field, in errors with their causes, and in the message (`redact.ts`).
 */
export function createLogger(level: Config['logLevel'], role: string): Logger {
  const logger = pino(
    {
      level,
      base: { role },
      timestamp: pino.stdTimeFunctions.isoTime,
      // Done below, for errors wherever they stand.
      serializers: { err: (error: unknown) => error },
      hooks: {
        logMethod(given, method) {
          method.apply(this, clean(given));
        },
      },
    },
    pino.destination({ dest: 2, sync: false }),
  );
  const makeChild = logger.child;
  // What a child is bound to goes into its lines as it is.
  logger.child = function child(this: typeof logger, bindings: object, options?: object) {
    return makeChild.call(this, withoutSecrets(bindings, serializeError) as object, options);
  } as typeof logger.child;
  return logger;
}

type Call = [obj: unknown, msg?: string, ...args: unknown[]];

/** The arguments of one call of the log. An error alone gives its own message, which may quote what customers sent, to none. */
function clean(given: readonly unknown[]): Call {
  const [first, ...rest] = given;
  const values = rest.map((value) => withoutSecrets(value, serializeError));
  if (first instanceof Error)
    return [{ err: serialized(first) }, ...(values.length > 0 ? values : ['an error'])] as Call;
  if (typeof first !== 'object' || first === null || !('err' in first)) {
    return [withoutSecrets(first, serializeError), ...values] as Call;
  }
  const { err, ...fields } = first;
  return [{ ...(withoutSecrets(fields, serializeError) as object), err: serialized(err) }, ...values] as Call;
}

/** What is thrown need not be an error. */
function serialized(thrown: unknown): unknown {
  return withoutSecrets(thrown instanceof Error ? thrown : { message: withoutQuoted(String(thrown)) }, serializeError);
}

const longestForeignText = 200;

/**
 * Keeps name, code, text and the lines of the stack that say where; drops every other property. Text of the catalogue stays
 * as it is. Other text, and that of every cause, may quote what customers sent: what is in quotes is cut out, and of the
 * rest the first 200 characters are kept.
 */
function serializeError(error: Error): object {
  const causes: string[] = [];
  let cause: unknown = error.cause;
  while (cause instanceof Error && causes.length < 5) {
    const code = 'code' in cause ? ` [${String(cause.code).slice(0, 50)}]` : '';
    causes.push(`${cause.name}${code}: ${withoutQuoted(cause.message)}`);
    cause = cause.cause;
  }
  return {
    name: error.name,
    code: 'code' in error ? error.code : undefined,
    message: isRunlakeError(error) ? error.message.slice(0, 2_000) : withoutQuoted(error.message),
    stack: error.stack
      ?.split('\n')
      .filter((line) => /^ {4}at /.test(line))
      .join('\n')
      .slice(0, 4_000),
    ...(causes.length > 0 ? { causes } : {}),
  };
}

/** A quote that nothing closes reaches to the end. */
function withoutQuoted(text: string): string {
  const bounded = text.slice(0, 10_000);
  return bounded.replace(/(['"`])(?:\\.|(?!\1)[^\\])*(?:\1|\\?$)/gs, '$1…$1').slice(0, longestForeignText);
}
