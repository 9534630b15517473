/**
 * Asks the custom authentication of a project, which runs in a process of its own.
 *
 * Invariant: each question ends once, and nothing but an answer lets anybody in. 1. It is refused at once where the process is not up
 * or has too many. 2. It has two seconds. 3. Where the process goes meanwhile, so do its questions; another process follows.
 */
import { fault } from '../../../infra/errors/runlake-error.ts';
import type { AccountSource } from '../../../infra/isolation/process-accounts.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { GraphsFile } from '../graphs/graphs-file.ts';
import { violation } from '../workers/frames.ts';
import { openModuleWorker } from '../workers/open-module-worker.ts';
import type { FromWorker } from '../workers/worker-messages.ts';
import { type RequiredMetadata, requiredMetadata } from './access-filter.ts';
import type { AgentUser, AuthIdentity, AuthQuestion, AuthRequest, AuthVerdict } from './agent-user.ts';

export interface AuthDesk {
  /** @throws AUTH_REJECTED with the handler's status and text, AUTH_UNAVAILABLE */
  identify(request: AuthRequest): Promise<AgentUser>;
  /**
   * Asks the handler of `event`. The value is that of the question, as the handler left it.
   *
   * @throws AUTH_FORBIDDEN with the handler's status and text, AUTH_HANDLER_INVALID, AUTH_UNAVAILABLE
   */
  allow(question: AuthQuestion): Promise<Allowed>;
  close(): Promise<void>;
}

export interface Allowed {
  readonly required: RequiredMetadata | undefined;
  readonly value: Readonly<Record<string, unknown>>;
}

interface Waiting {
  readonly resolve: (json: string) => void;
  readonly reject: (error: unknown) => void;
  readonly timer: NodeJS.Timeout;
}

const answerWithinMs = 2_000;
const mostAtOnce = 512;

/**
 * Starts that process for the `auth` of a langgraph.json.
 *
 * @throws GRAPHS_FILE_INVALID where what `auth.path` names cannot be used.
 */
export async function openAuthDesk(options: {
  readonly file: GraphsFile;
  readonly environment: Readonly<Record<string, string>>;
  readonly accounts?: AccountSource | undefined;
  readonly silentMs: number;
  readonly logger: Logger;
}): Promise<AuthDesk> {
  const { file, environment, accounts, silentMs, logger } = options;
  const waiting = new Map<number, Waiting>();
  /** Keys of questions that ran out of time, whose answers may still come. */
  const late = new Set<number>();
  let lastKey = 0;
  const worker = await openModuleWorker({
    part: 'auth',
    setup: file.auth ? { auth: { path: file.auth.path, name: file.auth.name } } : {},
    file,
    environment,
    accounts,
    silentMs,
    onLine: (line) => logger.info({ line }, 'custom authentication wrote'),
    hooks: {
      onReady: () => undefined,
      onMessage: hear,
      onGone: ({ reason }) => {
        late.clear();
        logger.warn({ reason }, 'the process of custom authentication has gone');
        for (const key of [...waiting.keys()]) end(key, fault('AUTH_UNAVAILABLE', { reason: 'its process ended' }));
      },
    },
  });

  function hear(message: FromWorker): void {
    if (message.kind !== 'answer') throw violation(`a message '${message.kind}' of the auth process`);
    if (waiting.has(message.key)) end(message.key, message.json);
    else if (!late.delete(message.key)) throw violation('an answer to no question');
  }

  function end(key: number, outcome: string | Error): void {
    const question = waiting.get(key);
    if (question === undefined) return;
    waiting.delete(key);
    clearTimeout(question.timer);
    if (typeof outcome === 'string') question.resolve(outcome);
    else question.reject(outcome);
  }

  async function ask(request: { identify: AuthRequest } | { judge: AuthQuestion }): Promise<unknown> {
    if (!worker.ready) throw fault('AUTH_UNAVAILABLE', { reason: 'its process is not up' });
    if (waiting.size >= mostAtOnce) throw fault('AUTH_UNAVAILABLE', { reason: 'too many requests wait for it' });
    lastKey += 1;
    const key = lastKey;
    const answer = new Promise<string>((resolve, reject) => {
      const tooLate = fault('AUTH_UNAVAILABLE', { reason: `there was no answer within ${answerWithinMs / 1_000} s` });
      const timer = setTimeout(() => {
        late.add(key);
        end(key, tooLate);
      }, answerWithinMs);
      waiting.set(key, { resolve, reject, timer });
    });
    worker.tell({ kind: 'auth', key, request });
    return JSON.parse(await answer) as unknown;
  }

  return {
    async identify(request) {
      const answer = (await ask({ identify: request })) as AuthIdentity;
      if ('user' in answer) return answer.user;
      if (answer.reason !== undefined) logger.debug({ reason: answer.reason }, 'custom authentication refused');
      const { status, message } = answer.refusal;
      throw fault('AUTH_REJECTED', { reason: message }, { status });
    },
    async allow(question) {
      const verdict = (await ask({ judge: question })) as AuthVerdict;
      if (verdict.allowed) {
        return { required: requiredMetadata(verdict.filter, question.event), value: verdict.value };
      }
      const { status, message } = verdict.refusal;
      throw fault('AUTH_FORBIDDEN', { reason: message }, { status });
    },
    async close() {
      await worker.stop('the agent server stops');
    },
  };
}
