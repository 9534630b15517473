import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { stateUpdateMode, stateUpdateText } from '../../../pipelines/agents/streams/publish-state.ts';
import type { StreamedEvent, StreamReader } from '../../../pipelines/agents/streams/stream-types.ts';
import { readThreadState } from '../../../pipelines/agents/threads/read-thread-state.ts';
import type { Agents } from '../agent-services.ts';
import type { LiveSource } from './live-body.ts';

/** An event, or the state of its thread at that event: JSON text of {thread_id, state}. */
export interface ThreadEvent {
  readonly event: StreamedEvent;
  readonly state?: string;
}

/** Returns the events of a thread and, after the end of each run, the current state of the thread. */
export function withStates(reader: StreamReader, agents: Agents, threadId: string): LiveSource<ThreadEvent> {
  /** Returns undefined if the thread is deleted or its graph is unusable. */
  async function stateNow(): Promise<string | undefined> {
    try {
      return stateUpdateText(threadId, await readThreadState(agents, threadId, { subgraphs: false }));
    } catch (error) {
      if (isRunlakeError(error) && error.class === 'caller') return undefined;
      throw error;
    }
  }

  return {
    async *[Symbol.asyncIterator]() {
      for await (const event of reader) {
        if (event.mode === stateUpdateMode) yield { event, state: Buffer.from(event.data).toString('utf8') };
        else yield { event };
        const state = event.isEnd ? await stateNow() : undefined;
        if (state !== undefined) yield { event, state };
      }
    },
    close: () => reader.close(),
  };
}
