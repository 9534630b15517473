import { fault } from '../../../infra/errors/runlake-error.ts';
import type { GraphNodes } from '../graphs/graph-nodes.ts';
import { violation } from './frames.ts';
import type { GraphWorkerOptions } from './graph-worker.ts';
import { KeptWorker } from './kept-worker.ts';
import { failureOf, faultOf } from './refusal.ts';
import type { FromWorker } from './worker-messages.ts';
import type { GraphRequest } from './worker-pool.ts';

interface Question {
  readonly key: number;
  readonly request: GraphRequest;
  readonly resolve: (json: string) => void;
  readonly reject: (error: unknown) => void;
  timer: NodeJS.Timeout;
}

/** Questions in the worker at once; they mostly wait for the database. */
const mostAtOnce = 16;
const queueMs = 2_000;
const answerWithinMs = 30_000;

/**
 * Puts questions to a worker of their own, so that they never wait behind runs.
 *
 * Invariant: each question ends once: with its answer, its refusal, or one of the limits. 1. It queues, for two seconds at most.
 * 2. It goes to the worker when fewer than 16 are there; it has 30 s. 3. If the worker ends meanwhile, a question that was alone in it
 * is to blame; of several any may be sent again.
 */
export class QuestionDesk {
  readonly #worker: KeptWorker;
  readonly #queue = new Map<number, Question>();
  readonly #asked = new Map<number, Question>();
  /** Keys of questions that ran out of time in the worker, whose answers may still come. */
  readonly #late = new Set<number>();
  #lastKey = 0;
  #closed = false;

  constructor(
    options: () => Omit<GraphWorkerOptions, 'onMessage' | 'onGone'>,
    hooks: {
      readonly onReady: (faults: Readonly<Record<string, string>>, nodes: Readonly<Record<string, GraphNodes>>) => void;
      readonly onGone: (verdict: Parameters<GraphWorkerOptions['onGone']>[0]) => void;
    },
  ) {
    this.#worker = new KeptWorker(options, {
      onReady: (faults, _routes, nodes) => {
        hooks.onReady(faults, nodes);
        this.#next();
      },
      onMessage: (message) => this.#hear(message),
      onGone: (verdict) => {
        const alone = this.#asked.size === 1;
        this.#late.clear();
        for (const question of [...this.#asked.values()]) {
          this.#end(
            question,
            alone && verdict.blame === 'self'
              ? faultOf(failureOf(question.request, `the process that asked it: ${verdict.reason}`))
              : fault('GRAPH_WORKER_BUSY'),
          );
        }
        hooks.onGone(verdict);
      },
    });
  }

  /** @throws GRAPH_WORKER_BUSY, GRAPH_FAILED, and what the worker refuses it with. */
  ask(request: GraphRequest): Promise<string> {
    if (this.#closed) return Promise.reject(fault('GRAPH_WORKER_BUSY'));
    return new Promise((resolve, reject) => {
      this.#lastKey += 1;
      const question: Question = {
        key: this.#lastKey,
        request,
        resolve,
        reject,
        timer: setTimeout(() => this.#end(question, fault('GRAPH_WORKER_BUSY')), queueMs),
      };
      this.#queue.set(question.key, question);
      this.#next();
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const question of [...this.#queue.values(), ...this.#asked.values()]) {
      this.#end(question, fault('GRAPH_WORKER_BUSY'));
    }
    await this.#worker.stop('the agent server stops');
  }

  #next(): void {
    for (const question of this.#queue.values()) {
      if (!this.#worker.ready || this.#asked.size >= mostAtOnce) return;
      this.#queue.delete(question.key);
      this.#asked.set(question.key, question);
      clearTimeout(question.timer);
      question.timer = setTimeout(() => {
        this.#late.add(question.key);
        this.#end(question, fault('GRAPH_WORKER_BUSY'));
      }, answerWithinMs);
      this.#worker.tell({ kind: 'ask', key: question.key, request: question.request });
    }
  }

  #hear(message: FromWorker): void {
    if (message.kind !== 'answer' && message.kind !== 'refusal') {
      throw violation(`a message '${message.kind}' of the worker for questions`);
    }
    const question = this.#asked.get(message.key);
    if (question === undefined) {
      if (this.#late.delete(message.key)) return;
      throw violation('an answer to no question');
    }
    this.#end(question, message.kind === 'answer' ? message.json : faultOf(message.refusal));
    this.#next();
  }

  #end(question: Question, end: string | Error): void {
    clearTimeout(question.timer);
    this.#queue.delete(question.key);
    this.#asked.delete(question.key);
    if (typeof end === 'string') question.resolve(end);
    else question.reject(end);
  }
}
