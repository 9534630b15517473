import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { ThreadState } from '../threads/thread.ts';
import type { StreamPublisher } from './stream-ports.ts';

/** The mode, and the name, of events that tell of state written outside a run. Only readers that ask for it get them. */
export const stateUpdateMode = 'state_update';

/** Tells the readers of a thread of its new state. A log that takes nothing costs them that event, and the writer nothing. */
export type TellState = (update: {
  readonly deploymentId: string;
  readonly threadId: string;
  /** Of the update, among the starts of runs. */
  readonly threadStart: number;
  /** A UUID; stands where events of runs have that of the run. */
  readonly updateId: string;
  readonly state: ThreadState;
}) => Promise<void>;

export function tellStateBy(publisher: Pick<StreamPublisher, 'open'>, logger: Logger): TellState {
  return async ({ deploymentId, threadId, threadStart, updateId, state }) => {
    const writer = publisher.open({ deploymentId, threadId, runId: updateId, attempt: 1, threadStart, kept: true });
    const data = Buffer.from(stateUpdateText(threadId, JSON.stringify(state)));
    const failed = (err: unknown) =>
      logger.warn({ err, threadId }, 'readers were not told of the new state of a thread');
    try {
      await writer.write([{ mode: stateUpdateMode, event: stateUpdateMode, namespace: '', data }]);
      writer.settled().catch(failed);
    } catch (err) {
      failed(err);
    }
  };
}

/** Its data. @param state JSON text */
export function stateUpdateText(threadId: string, state: string): string {
  return `{"thread_id":${JSON.stringify(threadId)},"state":${state}}`;
}
