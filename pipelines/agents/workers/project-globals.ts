import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { inspect } from 'node:util';

/**
 * What the packages of LangChain look for in the global scope of an agent server: a logger (`getLogger()` of
 * `@langchain/langgraph-sdk/logging`) and the way to the own server (`new Client()` without a URL). They exist before code of the project is
 * imported. Source: `@langchain/langgraph-sdk` 1.12, `logging/index.js`, `client/base.js`; reference server, `loopback.mts`, `logging.mts`.
 *
 * A call to the own server is a request like any other, with the credentials that the code gives it. In the custom app a call without any
 * has those of the request that the app is answering, and so never more rights than its sender.
 */
export function installProjectGlobals(serverUrl: string | undefined): void {
  const scope = globalThis as unknown as Record<symbol, unknown>;
  scope[Symbol.for('langgraph.api.sdk-logger')] = projectLogger((line) => process.stdout.write(line));
  if (serverUrl === undefined) return;
  const own = globalThis.fetch;
  scope[Symbol.for('langgraph_api:url')] = new OwnUrl(serverUrl);
  scope[Symbol.for('langgraph_api:fetch')] = (input: unknown, init: RequestInit = {}) => {
    const { url, sender } = resolveOwn(input, serverUrl);
    return own(url, { ...init, headers: withCredentials(new Headers(init.headers), sender) });
  };
}

/** Headers that say who sends a request. */
const credentials = ['x-api-key', 'authorization', 'cookie'];
/** Those, and what they are to be used for. */
const forwarded = [...credentials, 'x-tenant-id', 'x-organization-id'];

type Sender = Readonly<Record<string, string>>;

/** Senders of requests that the app is answering, by handle. */
const senders = new Map<string, Sender>();
const answering = new AsyncLocalStorage<string>();

/** Runs `work`, whose calls to the own server have the credentials of `headers`, until `onEnd` reports the end of the request. */
export function actingFor<Result>(
  headers: IncomingHttpHeaders,
  onEnd: (forget: () => void) => void,
  work: () => Result,
): Result {
  const handle = randomUUID();
  const sender = forwarded.flatMap((name) => (headers[name] === undefined ? [] : [[name, String(headers[name])]]));
  senders.set(handle, Object.fromEntries(sender) as Sender);
  onEnd(() => senders.delete(handle));
  return answering.run(handle, work);
}

/**
 * The URL of the own server. A client that several requests share queues its calls, and a call then runs in the asynchronous context of
 * the one before it. The client composes the URL of a call before it queues it: so the handle of the request that makes it is put there.
 */
class OwnUrl extends String {
  override toString(): string {
    const url = super.toString();
    const handle = answering.getStore();
    return handle === undefined ? url : url.replace('://', `://${handle}@`);
  }
}

/** Every call goes to the own server, whatever host it names. */
function resolveOwn(input: unknown, serverUrl: string): { readonly url: URL; readonly sender: Sender | undefined } {
  const url = new URL(input instanceof Request ? input.url : String(input), serverUrl);
  const sender = senders.get(url.username || (answering.getStore() ?? ''));
  const { protocol, host } = new URL(serverUrl);
  Object.assign(url, { protocol, host, username: '', password: '' });
  return { url, sender };
}

function withCredentials(headers: Headers, sender: Sender | undefined): Headers {
  if (sender === undefined || credentials.some((name) => headers.has(name))) return headers;
  for (const [name, value] of Object.entries(sender)) if (!headers.has(name)) headers.set(name, value);
  return headers;
}

const levels = [
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

export type ProjectLogger = Record<(typeof levels)[number], (message: unknown, ...meta: unknown[]) => ProjectLogger>;

/** The logger of a project, as that of winston: each call writes one line of JSON, which the front adds to its log. */
export function projectLogger(write: (line: string) => unknown): ProjectLogger {
  const logger = {} as ProjectLogger;
  for (const level of levels) {
    logger[level] = (message, ...meta) => {
      write(`${lineOf(level, message, meta)}\n`);
      return logger;
    };
  }
  return logger;
}

function lineOf(level: string, message: unknown, meta: readonly unknown[]): string {
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
    // What JSON cannot say, such as a circle.
    return JSON.stringify({ level, message: inspect(message), meta: inspect(meta) });
  }
}
