import { createRequire } from 'node:module';
import { type DestinationStream, type Logger as PinoLogger, pino } from 'pino';
import type * as PinoPretty from 'pino-pretty';
import type { Config } from '../config/settings.ts';
import { isRunlakeError } from '../errors/runlake-error.ts';

/** Redacts secrets in logs, by the name of their field and by patterns in text. */

/**
 * Matches the ending of a secret name, in lower case without dashes and underscores: the names `X-Api-Key`,
 * `sasl_password` and `secretAccessKey` match.
 */
const secretEndingPattern =
  /(?:password|passwd|passphrase|secret|apikey|secretkey|accesskey|privatekey|servicekey|authorization|cookie|credentials?|(?:access|refresh|session|bearer|auth|id)token)$/;
const secretNames: ReadonlySet<string> = new Set(['key', 'token', 'pass', 'pwd', 'sasl']);

const redactedText = '***';
const maxDepth = 8;
const maxValues = 2_000;

export function isSecretName(name: string): boolean {
  const plain = name.toLowerCase().replace(/[-_\s]/g, '');
  return secretNames.has(plain) || secretEndingPattern.test(plain);
}

/**
 * Returns a copy of any value with secrets redacted at any depth. `convertError` converts errors to objects. Replaces
 * values below eight levels of nesting, and all values after the first two thousand, by `…`.
 */
function redactSecrets(value: unknown, convertError: (error: Error) => object): unknown {
  let values = 0;
  const copy = (inner: unknown, depth: number): unknown => {
    if (typeof inner === 'string') return scrubText(inner);
    if (typeof inner !== 'object' || inner === null || inner instanceof Date) return inner;
    if (inner instanceof Error) return copy(convertError(inner), depth);
    if (ArrayBuffer.isView(inner)) return `${inner.byteLength} bytes`;
    if (depth === maxDepth || ++values > maxValues) return '…';
    if (Array.isArray(inner)) return inner.map((item) => copy(item, depth + 1));
    return Object.fromEntries(
      Object.entries(inner).map(([name, item]) => [
        name,
        isSecretName(name) && item !== undefined && item !== null ? redactedText : copy(item, depth + 1),
      ]),
    );
  };
  return copy(value, 0);
}

// Texts can be the output of untrusted code, so these patterns must take linear time: a name is matched from its first
// character only, and a scheme within a bound.

/** Matches user and password of a URL, up to the last `@` before the path, because passwords may contain `@`. */
const userInfoPattern = /([a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/?#"'`]*@/gi;
const authorizationPattern = /\b(bearer|basic)\s+(?!\*)[\w.~+/=-]{6,}/gi;
const apiKeyPattern = /\b(rlk_|lsv2_[a-z]{2}_)[\w-]{8,}/g;
/** Matches `password=…`, `"api_key": "…"` and `?secret=…`: name, separator, value. */
const assignmentPattern =
  /(?<![\w-])([\w-]+)(?<=password|passwd|passphrase|secret|api[-_]?key|secret[-_]?key|access[-_]?key|private[-_]?key|authorization|credentials?|(?:access|refresh|session|auth)[-_]?token)(\\?["'`]?\s*(?:=|:)\s*)(\\?"(?:[^"\\]|\\[^"])*\\?"|'[^']*'|`[^`]*`|(?:(?:bearer|basic)\s+)?[^\s,;&"'`}\])]+)/gi;

/** Matches every text that one of the patterns matches. UUIDs and single words do not match. */
const suspectPattern = /[@:=_\s]/;

/** Replaces everything in `text` that looks like a secret. */
export function scrubText(text: string): string {
  if (!suspectPattern.test(text)) return text;
  return text
    .replace(userInfoPattern, `$1${redactedText}@`)
    .replace(assignmentPattern, `$1$2${redactedText}`)
    .replace(authorizationPattern, `$1 ${redactedText}`)
    .replace(apiKeyPattern, `$1${redactedText}`);
}

export type Logger = Pick<PinoLogger, 'debug' | 'info' | 'warn' | 'error'> & { child(bindings: object): Logger };

/**
 * Creates a logger that writes to stderr: one JSON line per event, or readable text if stderr is a terminal. Stdout is
 * reserved for the output of commands. The logger redacts secrets in every field, in errors with their causes, and in
 * the message.
 */
export function createLogger(level: Config['logLevel'], role: string): Logger {
  const logger = pino(
    {
      level,
      base: { role },
      timestamp: pino.stdTimeFunctions.isoTime,
      // `redactArguments` has already serialised errors, at any depth.
      serializers: { err: (error: unknown) => error },
      hooks: {
        logMethod(given, method) {
          method.apply(this, redactArguments(given));
        },
      },
    },
    process.stderr.isTTY ? openTerminal() : pino.destination({ dest: 2, sync: false }),
  );
  const createChild = logger.child;
  // pino writes the bindings of a child unchanged, so they are redacted here.
  logger.child = function child(this: typeof logger, bindings: object, options?: object) {
    return createChild.call(this, redactSecrets(bindings, serializeError) as object, options);
  } as typeof logger.child;
  return logger;
}

/** Opens the output for a terminal. The formatter is loaded only here, because a server does not need it. */
function openTerminal(): DestinationStream {
  const { default: pretty, isColorSupported } = createRequire(import.meta.url)('pino-pretty') as typeof PinoPretty;
  return pretty({
    destination: 2,
    sync: true,
    colorize: isColorSupported,
    translateTime: 'SYS:HH:MM:ss.l',
    ignore: 'role',
    messageFormat: '{role}: {msg}',
    singleLine: true,
  });
}

type Call = [obj: unknown, msg?: string, ...args: unknown[]];

/**
 * Redacts the arguments of one log call. A call without a message gets a fixed message, because the message of the
 * error may quote customer data.
 */
function redactArguments(given: readonly unknown[]): Call {
  const [first, ...rest] = given;
  const values = rest.map((value) => redactSecrets(value, serializeError));
  if (first instanceof Error)
    return [{ err: serializeThrown(first) }, ...(values.length > 0 ? values : ['an error'])] as Call;
  if (typeof first !== 'object' || first === null || !('err' in first)) {
    return [redactSecrets(first, serializeError), ...values] as Call;
  }
  const { err, ...fields } = first;
  return [{ ...(redactSecrets(fields, serializeError) as object), err: serializeThrown(err) }, ...values] as Call;
}

/** Serialises a thrown value, which need not be an error. */
function serializeThrown(thrown: unknown): unknown {
  return redactSecrets(
    thrown instanceof Error ? thrown : { message: removeQuotedText(String(thrown)) },
    serializeError,
  );
}

const maxForeignTextLength = 200;

/**
 * Keeps name, code, message and stack frames; drops all other properties. Messages of the catalogue are kept unchanged.
 * Other messages, and those of all causes, may quote customer data: quoted text is removed, and the rest is truncated
 * to 200 characters.
 */
function serializeError(error: Error): object {
  const causes: string[] = [];
  let cause: unknown = error.cause;
  while (cause instanceof Error && causes.length < 5) {
    const code = 'code' in cause ? ` [${String(cause.code).slice(0, 50)}]` : '';
    causes.push(`${cause.name}${code}: ${removeQuotedText(cause.message)}`);
    cause = cause.cause;
  }
  return {
    name: error.name,
    code: 'code' in error ? error.code : undefined,
    message: isRunlakeError(error) ? error.message.slice(0, 2_000) : removeQuotedText(error.message),
    stack: error.stack
      ?.split('\n')
      .filter((line) => /^ {4}at /.test(line))
      .join('\n')
      .slice(0, 4_000),
    ...(causes.length > 0 ? { causes } : {}),
  };
}

/** Replaces quoted text by `…`; an unclosed quote extends to the end. */
function removeQuotedText(text: string): string {
  const boundedText = text.slice(0, 10_000);
  return boundedText.replace(/(['"`])(?:\\.|(?!\1)[^\\])*(?:\1|\\?$)/gs, '$1…$1').slice(0, maxForeignTextLength);
}
