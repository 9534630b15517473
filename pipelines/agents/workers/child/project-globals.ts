import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { inspect } from 'node:util';

/**
 * Installs the globals that LangChain packages expect in an agent server: a logger (`getLogger()` of
 * `@langchain/langgraph-sdk/logging`), and a URL and `fetch` for calls to this server (`new Client()` without a URL).
 * Call it before project code is imported. Source: `@langchain/langgraph-sdk` 1.12, `logging/index.js`,
 * `client/base.js`; reference server, `loopback.mts`, `logging.mts`.
 *
 * A call to this server is an ordinary request with the credentials that the calling code sets. In the custom app, a
 * call without credentials uses the credentials of the request that the app is handling, so it never has more rights
 * than the sender of that request.
 */
export function installProjectGlobals(serverUrl: string | undefined): void {
  const scope = globalThis as unknown as Record<symbol, unknown>;
  scope[Symbol.for('langgraph.api.sdk-logger')] = createProjectLogger((line) => process.stdout.write(line));
  if (serverUrl === undefined) return;
  const nativeFetch = globalThis.fetch;
  scope[Symbol.for('langgraph_api:url')] = new ServerUrl(serverUrl);
  scope[Symbol.for('langgraph_api:fetch')] = (input: unknown, init: RequestInit = {}) => {
    const { url, sender } = resolveServerUrl(input, serverUrl);
    return nativeFetch(url, { ...init, headers: addCredentials(new Headers(init.headers), sender) });
  };
}

/** Headers that identify the sender of a request. */
const credentialHeaders = ['x-api-key', 'authorization', 'cookie'];
/** Headers with the credentials, and with the workspace and organisation to which they apply. */
const forwardedHeaders = [...credentialHeaders, 'x-tenant-id', 'x-organization-id'];

type Sender = Readonly<Record<string, string>>;

/** Senders of the requests that the app is currently handling, by handle. */
const senders = new Map<string, Sender>();
const currentHandle = new AsyncLocalStorage<string>();

/**
 * Runs `work`. Calls that it makes to this server use the credentials in `headers`, until the function that was passed
 * to `onEnd` is called.
 */
export function runWithCredentials<Result>(
  headers: IncomingHttpHeaders,
  onEnd: (forget: () => void) => void,
  work: () => Result,
): Result {
  const handle = randomUUID();
  const sender = forwardedHeaders.flatMap((name) =>
    headers[name] === undefined ? [] : [[name, String(headers[name])]],
  );
  senders.set(handle, Object.fromEntries(sender) as Sender);
  onEnd(() => senders.delete(handle));
  return currentHandle.run(handle, work);
}

/**
 * URL of this server for calls from project code. If several requests share a client, it queues its calls, so a call
 * may execute in the asynchronous context of another request. The client composes the URL before it queues the call;
 * therefore the URL contains the handle of the calling request.
 */
class ServerUrl extends String {
  override toString(): string {
    const url = super.toString();
    const handle = currentHandle.getStore();
    return handle === undefined ? url : url.replace('://', `://${handle}@`);
  }
}

/** Returns the URL of a call, in which the host is replaced by the host of this server, and the sender of the call. */
function resolveServerUrl(
  input: unknown,
  serverUrl: string,
): { readonly url: URL; readonly sender: Sender | undefined } {
  const url = new URL(input instanceof Request ? input.url : String(input), serverUrl);
  const sender = senders.get(url.username || (currentHandle.getStore() ?? ''));
  const { protocol, host } = new URL(serverUrl);
  Object.assign(url, { protocol, host, username: '', password: '' });
  return { url, sender };
}

function addCredentials(headers: Headers, sender: Sender | undefined): Headers {
  if (sender === undefined || credentialHeaders.some((name) => headers.has(name))) return headers;
  for (const [name, value] of Object.entries(sender)) if (!headers.has(name)) headers.set(name, value);
  return headers;
}

const logLevels = [
  'error',
  'warn',
  'help',
  'data',
  'info',
  'debug',
  'prompt',
  'http',
  'verbose',
  'input',
  'silly',
] as const;

export type ProjectLogger = Record<(typeof logLevels)[number], (message: unknown, ...meta: unknown[]) => ProjectLogger>;

/**
 * Creates a logger with the interface of winston. Each call writes one line of JSON, which the parent process copies to
 * its log.
 */
export function createProjectLogger(write: (line: string) => unknown): ProjectLogger {
  const logger = {} as ProjectLogger;
  for (const level of logLevels) {
    logger[level] = (message, ...meta) => {
      write(`${formatLine(level, message, meta)}\n`);
      return logger;
    };
  }
  return logger;
}

function formatLine(level: string, message: unknown, meta: readonly unknown[]): string {
  const fields = [message, ...meta].filter((each) => typeof each === 'object' && each !== null);
  const line = {
    level,
    ...(typeof message !== 'object' && { message: String(message) }),
    ...Object.assign(
      {},
      ...fields.map((each) => (each instanceof Error ? { message: each.stack ?? each.message } : each)),
    ),
  };
  try {
    return JSON.stringify(line);
  } catch {
    // The value cannot be encoded as JSON, for example because it is cyclic.
    return JSON.stringify({ level, message: inspect(message), meta: inspect(meta) });
  }
}
