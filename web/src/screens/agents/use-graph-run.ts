import { useEffect, useRef, useState } from 'react';
import { ApiError } from '../../api/client.ts';
import { parseExact } from '../../components/values/exact-json.ts';
import { type AgentClient, type AgentRequest, useAgentClient } from './agent-client.ts';
import { applyEvent, idleRun, type RunView } from './graph-run.ts';

/** Minimum interval between renderings, because tokens arrive more often. */
const renderMs = 40;
const retryMs = [300, 1_000, 2_000, 4_000, 8_000, 8_000];
const firstEvent = '-1';

/**
 * Starts and follows graph runs of a thread. A run continues when the viewer leaves the screen, which joins the run
 * again on return. `onEnd` reads the data that a run changes. `start` returns whether the run began.
 */
export function useGraphRun(onEnd: () => Promise<unknown>) {
  const client = useAgentClient();
  const [view, setView] = useState<RunView>(idleRun);
  const following = useRef<AbortController>(undefined);
  const whenEnded = useRef(onEnd);
  whenEnded.current = onEnd;
  useEffect(() => () => following.current?.abort(), []);

  const follow = async (threadId: string, open: (signal: AbortSignal) => ReturnType<AgentClient['stream']>) => {
    following.current?.abort();
    const abort = new AbortController();
    following.current = abort;
    const show = createPainter(setView, abort.signal);
    show({ ...idleRun, phase: 'running', threadId });
    let hasBegun = false;
    const begin = async (signal: AbortSignal) => {
      const stream = await open(signal);
      hasBegun = true;
      return stream;
    };
    try {
      await readRun(client, begin, show, abort.signal);
    } catch (error) {
      if (abort.signal.aborted) return hasBegun;
      show((former) => ({ ...former, error: error instanceof Error ? error.message : String(error) }));
    }
    // Data that was read before the run, such as its interrupts, must not reappear.
    await whenEnded.current();
    if (!abort.signal.aborted) show((former) => ({ ...former, phase: 'ended' }));
    return hasBegun;
  };
  return {
    view,
    start: (threadId: string, body: object) =>
      follow(threadId, (signal) =>
        client.stream('post', `/threads/${threadId}/runs/stream`, {
          body: {
            stream_mode: ['values', 'messages-tuple', 'updates', 'custom'],
            stream_resumable: true,
            on_disconnect: 'continue',
            ...body,
          },
          signal,
        }),
      ),
    join: (threadId: string, runId: string) =>
      follow(threadId, (signal) =>
        client.stream('get', `/threads/${threadId}/runs/${runId}/stream`, { lastEventId: firstEvent, signal }),
      ),
    cancel: (threadId: string, runId: string) =>
      client.request('post', `/threads/${threadId}/runs/${runId}/cancel`, { query: { wait: false } }),
    reset: () => {
      following.current?.abort();
      setView(idleRun);
    },
  };
}

type Show = (next: RunView | ((former: RunView) => RunView)) => void;

/** Reads a stream to its end. If the connection breaks, it continues after the last event that arrived. */
async function readRun(
  client: AgentClient,
  open: (signal: AbortSignal) => ReturnType<AgentClient['stream']>,
  show: Show,
  signal: AbortSignal,
): Promise<void> {
  let stream = await open(signal);
  const { runPath } = stream;
  let lastEventId: string | undefined;
  for (let attempt = 0; ; ) {
    try {
      for await (const { event, data, lastId } of stream.events) {
        lastEventId = lastId;
        attempt = 0;
        if (data === '') continue;
        show((former) => ({ ...applyEvent(former, event, parseExact(data)), phase: 'running' }));
      }
      return;
    } catch (error) {
      if (signal.aborted || runPath === undefined || attempt === retryMs.length) throw error;
      const options: AgentRequest = { lastEventId: lastEventId ?? firstEvent, signal };
      for (;;) {
        show((former) => ({ ...former, phase: 'reconnecting' }));
        await pause(retryMs[attempt] as number, signal);
        attempt += 1;
        try {
          stream = await client.stream('get', `${runPath}/stream`, options);
          break;
        } catch (failure) {
          const mayPass = failure instanceof ApiError && (failure.status === 0 || failure.status >= 500);
          if (!mayPass || attempt === retryMs.length) throw failure;
        }
      }
    }
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/** Returns a function that changes the view, and renders it at most every {@link renderMs}. */
function createPainter(setView: (view: RunView) => void, signal: AbortSignal): Show {
  let current = idleRun;
  let isPlanned = false;
  return (next) => {
    current = typeof next === 'function' ? next(current) : next;
    if (isPlanned) return;
    isPlanned = true;
    setTimeout(() => {
      isPlanned = false;
      if (!signal.aborted) setView(current);
    }, renderMs);
  };
}
