import { type Logger as PinoLogger, pino } from 'pino';
import type { Config } from '../config/settings.ts';

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

/** Keeps code, text and stack, and the text of each cause; drops every other property, which may hold customer data. */
function serializeError(error: unknown): object {
  if (!(error instanceof Error)) return { message: String(error) };
  const causes: string[] = [];
  let cause: unknown = error.cause;
  while (cause instanceof Error && causes.length < 5) {
    causes.push(`${cause.name}: ${cause.message.slice(0, 2_000)}`);
    cause = cause.cause;
  }
  return {
    name: error.name,
    code: 'code' in error ? error.code : undefined,
    message: error.message.slice(0, 2_000),
    stack: error.stack?.slice(0, 4_000),
    ...(causes.length > 0 ? { causes } : {}),
  };
}
