/**
 * Calls the custom authentication of a project, which runs in a process of its own (the auth process).
 *
 * Invariant: each request to the auth process ends exactly once, and only its answer can grant access.
 *
 *   1. A request fails at once if the process is not ready or has too many requests in flight.
 *   2. A request times out after two seconds. If too many that timed out are unanswered, the process is replaced.
 *   3. If the process exits, its requests fail and the worker handle starts another process.
 */
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { AccountSource } from '../../../infra/isolation/process-accounts.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { timedOut, withTimeout } from '../../../infra/timeouts/with-timeout.ts';
import type { GraphsFile } from '../graphs/graphs-file.ts';
import { createViolationError } from '../workers/frames.ts';
import { openModuleWorker } from '../workers/front/module-worker.ts';
import { parseAnswer } from '../workers/front/parse-answer.ts';
import type { MessageFromWorker } from '../workers/messages.ts';
import { parseRequiredMetadata, type RequiredMetadata } from './access-filter.ts';
import type { AgentUser, AuthIdentity, AuthorizationRequest, AuthRequest, AuthVerdict } from './agent-user.ts';

export interface AuthProcess {
  /** Authenticates a request. @throws AUTH_REJECTED with the handler's status and text, AUTH_UNAVAILABLE */
  identify(request: AuthRequest): Promise<AgentUser>;
  /**
   * Calls the handler of `request.event`. Returns the value of the request as the handler changed it.
   *
   * @throws AUTH_FORBIDDEN with the handler's status and text, AUTH_HANDLER_INVALID, AUTH_UNAVAILABLE
   */
  allow(request: AuthorizationRequest): Promise<AccessGrant>;
  close(): Promise<void>;
}

export interface AccessGrant {
  /** Members that the metadata of an object must contain. If undefined, the user has access to all objects. */
  readonly required: RequiredMetadata | undefined;
  readonly value: Readonly<Record<string, unknown>>;
}

interface PendingRequest {
  readonly resolve: (json: string) => void;
  readonly reject: (error: unknown) => void;
}

const requestTimeoutMs = 2_000;
/** Maximum number of requests that wait for an answer, and of those that timed out and are still unanswered. */
const maxConcurrentRequests = 512;

/**
 * Starts the auth process for the `auth` of a langgraph.json. Resolves when the module is loaded.
 *
 * @throws GRAPHS_FILE_INVALID if `auth.path` cannot be loaded or is not an `Auth`.
 */
export async function openAuthProcess(options: {
  readonly file: GraphsFile;
  readonly environment: Readonly<Record<string, string>>;
  readonly accounts?: AccountSource | undefined;
  /** Maximum time without a message from the process. */
  readonly heartbeatTimeoutMs: number;
  readonly logger: Logger;
}): Promise<AuthProcess> {
  const { file, environment, accounts, heartbeatTimeoutMs, logger } = options;
  const pending = new Map<number, PendingRequest>();
  /** Keys of requests that timed out. The process may still answer these requests; the answers are ignored. */
  const timedOutKeys = new Set<number>();
  let lastKey = 0;
  const worker = await openModuleWorker({
    part: 'auth',
    setup: file.auth ? { auth: { path: file.auth.path, name: file.auth.name } } : {},
    file,
    environment,
    accounts,
    heartbeatTimeoutMs,
    onLine: (line) => logger.info({ line }, 'output of the custom authentication'),
    hooks: {
      onReady: () => undefined,
      onMessage: receive,
      onExit: ({ reason }) => {
        timedOutKeys.clear();
        logger.warn({ reason }, 'process of the custom authentication ended');
        for (const key of [...pending.keys()])
          end(key, runlakeError('AUTH_UNAVAILABLE', { reason: 'its process ended' }));
      },
    },
  });

  function receive(message: MessageFromWorker): void {
    if (message.kind !== 'response')
      throw createViolationError(`an unexpected message '${message.kind}' from the auth process`);
    if (pending.has(message.key)) end(message.key, message.json);
    else if (!timedOutKeys.delete(message.key)) throw createViolationError('a response without a request');
  }

  function end(key: number, outcome: string | Error): void {
    const request = pending.get(key);
    if (request === undefined) return;
    pending.delete(key);
    if (typeof outcome === 'string') request.resolve(outcome);
    else request.reject(outcome);
  }

  async function call(request: { identify: AuthRequest } | { authorize: AuthorizationRequest }): Promise<unknown> {
    if (!worker.ready) throw runlakeError('AUTH_UNAVAILABLE', { reason: 'its process is not ready' });
    if (pending.size >= maxConcurrentRequests)
      throw runlakeError('AUTH_UNAVAILABLE', { reason: `it has ${maxConcurrentRequests} requests in flight` });
    lastKey += 1;
    const key = lastKey;
    const response = new Promise<string>((resolve, reject) => pending.set(key, { resolve, reject }));
    worker.send({ kind: 'auth', key, request });
    const json = await withTimeout(response, requestTimeoutMs);
    if (json !== timedOut) return parseAnswer(json);
    pending.delete(key);
    timedOutKeys.add(key);
    if (timedOutKeys.size >= maxConcurrentRequests)
      worker.kill('external', `${timedOutKeys.size} requests did not end`);
    throw runlakeError('AUTH_UNAVAILABLE', { reason: `it did not answer within ${requestTimeoutMs / 1_000} s` });
  }

  return {
    async identify(request) {
      const identity = (await call({ identify: request })) as AuthIdentity;
      if ('user' in identity) return identity.user;
      if (identity.reason !== undefined) logger.debug({ reason: identity.reason }, 'custom authentication refused');
      const { status, message } = identity.rejection;
      throw runlakeError('AUTH_REJECTED', { reason: message }, { status });
    },
    async allow(request) {
      const verdict = (await call({ authorize: request })) as AuthVerdict;
      if (verdict.allowed) {
        return { required: parseRequiredMetadata(verdict.filter, request.event), value: verdict.value };
      }
      const { status, message } = verdict.rejection;
      throw runlakeError('AUTH_FORBIDDEN', { reason: message }, { status });
    },
    async close() {
      await worker.stop('the agent server stops');
    },
  };
}
