import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { withTimeout } from '../../../infra/timeouts/with-timeout.ts';
import { parseAnswerWithout } from '../workers/front/parse-answer.ts';
import type { WorkerPool } from '../workers/front/worker-pool.ts';
import type { GraphThread } from '../workers/messages.ts';
import type { Interrupt, ThreadState } from './thread.ts';

/** Maximum time to read the state. The end of a run waits for it. */
const readTimeoutMs = 5_000;

/** The stored state of a thread, for the row of the thread. */
export interface NewestState {
  /** JSON text. */
  readonly values: string;
  readonly next: readonly string[];
  /** Open interrupts by task id. */
  readonly interrupts: Readonly<Record<string, readonly Interrupt[]>>;
}

/**
 * Reads the newest stored state of a thread, after a run that did not report its state.
 *
 * @returns undefined if there is none, or if the graph cannot read it in time.
 */
export async function readNewestState(
  pool: Pick<WorkerPool, 'query'>,
  thread: GraphThread,
): Promise<NewestState | undefined> {
  const reading = pool.query({
    kind: 'state',
    thread,
    subgraphs: false,
    select: ['values', 'next', 'tasks', 'checkpoint'],
  });
  const text = await withTimeout(reading, readTimeoutMs).catch((error: unknown) => {
    if (isRunlakeError(error)) return 'null';
    throw error;
  });
  const { answer: state, text: values } = parseAnswerWithout<ThreadState | null>(
    typeof text === 'symbol' ? 'null' : text,
    ['values'],
  );
  if (!state?.checkpoint) return undefined;
  const interrupted = state.tasks.filter(({ interrupts }) => interrupts.length > 0);
  return {
    values,
    next: state.next,
    interrupts: Object.fromEntries(interrupted.map(({ id, interrupts }) => [id, interrupts])),
  };
}
