import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { ThreadState } from '../threads/thread.ts';
import type { StreamPublisher } from './stream-types.ts';

/**
 * Mode and name of events for state that was written outside a run. Only readers that request the mode receive them.
 */
export const stateUpdateMode = 'state_update';

/** Publishes the new state of a thread to its readers. Never rejects: if the log is unavailable, readers miss the event. */
export type PublishState = (update: {
  readonly deploymentId: string;
  readonly threadId: string;
  /** Number of the update among the starts of the thread. Updates and run starts share one sequence. */
  readonly threadStart: number;
  /** UUID of the update, used instead of a run id. */
  readonly updateId: string;
  /** The state without its values, which are JSON text. */
  readonly state: Omit<ThreadState, 'values'>;
  readonly values: string;
}) => Promise<void>;

export function createStatePublisher(publisher: Pick<StreamPublisher, 'open'>, logger: Logger): PublishState {
  return async ({ deploymentId, threadId, threadStart, updateId, state, values }) => {
    const writer = publisher.open({ deploymentId, threadId, runId: updateId, attempt: 1, threadStart, kept: true });
    const rest = JSON.stringify({ ...state, values: undefined });
    const data = Buffer.from(encodeStateUpdate(threadId, `{"values":${values},${rest.slice(1)}`));
    const failed = (err: unknown) => logger.warn({ err, threadId }, 'state update of a thread not published');
    try {
      await writer.write([{ mode: stateUpdateMode, event: stateUpdateMode, namespace: '', data }]);
      writer.settled().catch(failed);
    } catch (err) {
      failed(err);
    }
  };
}

/** Returns the data of a state update event. @param state JSON text */
export function encodeStateUpdate(threadId: string, state: string): string {
  return `{"thread_id":${JSON.stringify(threadId)},"state":${state}}`;
}
