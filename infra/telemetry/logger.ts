import { type Logger as PinoLogger, pino } from 'pino';
import type { Config } from '../config/settings.ts';
import { isRunlakeError } from '../errors/runlake-error.ts';

export type Logger = Pick<PinoLogger, 'debug' | 'info' | 'warn' | 'error'> & { child(bindings: object): Logger };

/** Names under which secrets travel in logged objects, wherever they are nested up to two levels. */
const secretNames = [
  'authorization',
  'x-api-key',
  'password',
  'apiKey',
  'api_key',
  'key',
  'secret',
  'credentials',
  'cookie',
];

/** One line of JSON an event on standard error; secrets are replaced. Standard output stays free for what a command answers. */
export function createLogger(level: Config['logLevel'], role: string): Logger {
  return pino(
    {
      level,
      base: { role },
      timestamp: pino.stdTimeFunctions.isoTime,
      redact: {
        paths: secretNames.flatMap((name) => [`["${name}"]`, `*["${name}"]`, `*.*["${name}"]`]),
        censor: '***',
      },
      serializers: { err: serializeError },
    },
    pino.destination({ dest: 2, sync: false }),
  );
}

const longestForeignText = 200;

/**
 * Keeps name, code, text and the lines of the stack that say where; drops every other property. Text of the catalogue stays
 * as it is. Other text, and that of every cause, may quote what customers sent: what is in quotes is cut out, and of the
 * rest the first 200 characters are kept.
 */
function serializeError(error: unknown): object {
  if (!(error instanceof Error)) return { message: withoutQuoted(String(error)) };
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
