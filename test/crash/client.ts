import { setTimeout as pause } from 'node:timers/promises';
import type { Entry, Ledger } from './ledger.ts';
import type { Pipeline } from './pipeline.ts';

/** The response to a request without retries. */
export interface Answer {
  readonly status: number;
  readonly retryAfterSeconds: number;
  readonly tookMs: number;
}

/** Sends posts of `entries` in one request, once. @returns undefined if there was no response. */
export async function post(pipeline: Pipeline, entries: readonly Entry[]): Promise<Answer | undefined> {
  const body = { post: entries.map((entry) => ({ ...locationOf(entry), ...buildPostFields(entry) })) };
  const answer = await send(pipeline, body);
  if (answer?.status === 202) for (const entry of entries) entry.accepted = true;
  return answer;
}

/** Sends a single post, once: the API caches its trace location for patches that contain only the id. */
export async function postAlone(pipeline: Pipeline, entry: Entry): Promise<Answer | undefined> {
  const answer = await send(pipeline, { ...locationOf(entry), ...buildPostFields(entry) }, '/runs');
  if (answer?.status === 202) entry.accepted = true;
  return answer;
}

/** Sends a patch that names no project, once. */
export async function patch(pipeline: Pipeline, entries: readonly Entry[]): Promise<Answer | undefined> {
  for (const entry of entries) entry.outputs ??= `out of ${entry.id}`;
  const body = {
    patch: entries.map((entry) => ({
      ...locationOf(entry),
      outputs: { text: entry.outputs },
      end_time: new Date(entry.startMs + 1_000).toISOString(),
    })),
  };
  const answer = await send(pipeline, body);
  if (answer?.status === 202) for (const entry of entries) entry.patchAccepted = true;
  return answer;
}

/** Repeats `sending` until it is accepted, as clients do. @returns all responses. */
export async function untilAccepted(
  sending: () => Promise<Answer | undefined>,
  deadlineMs = 60_000,
): Promise<readonly (Answer | undefined)[]> {
  const answers: (Answer | undefined)[] = [];
  for (const end = performance.now() + deadlineMs; performance.now() < end; await pause(100)) {
    const answer = await sending();
    answers.push(answer);
    if (answer?.status === 202) return answers;
  }
  throw new Error(`not accepted within ${deadlineMs} ms: ${JSON.stringify(answers.slice(-5))}`);
}

export interface RequestLoad {
  /** Responses so far, in order; undefined if there was none. */
  readonly answers: readonly (Answer | undefined)[];
  stop(): Promise<void>;
}

/** Sends posts and patches from several concurrent senders, without retries, until stopped. */
export function load(pipeline: Pipeline, ledger: Ledger, { senders = 4, batch = 10, pauseMs = 20 } = {}): RequestLoad {
  const answers: (Answer | undefined)[] = [];
  let stopped = false;
  const sender = async () => {
    while (!stopped) {
      const entries = Array.from({ length: batch }, () => ledger.newRun());
      const answer = await post(pipeline, entries);
      answers.push(answer);
      // A patch of a trace that was not accepted would be deferred.
      if (answer?.status === 202) answers.push(await patch(pipeline, entries.slice(0, Math.ceil(batch / 2))));
      await pause(pauseMs);
    }
  };
  const running = Array.from({ length: senders }, sender);
  return {
    answers,
    async stop() {
      stopped = true;
      await Promise.all(running);
    },
  };
}

async function send(pipeline: Pipeline, body: object, path = '/runs/batch'): Promise<Answer | undefined> {
  const startedAtMs = performance.now();
  try {
    const answer = await pipeline.ask(path, body);
    await answer.arrayBuffer();
    const retryAfterSeconds = Number(answer.headers.get('retry-after'));
    return { status: answer.status, retryAfterSeconds, tookMs: performance.now() - startedAtMs };
  } catch {
    return undefined;
  }
}

export function locationOf({ id, traceId, startMs }: Entry) {
  const order = `${new Date(startMs).toISOString().replace(/[-:.Z]/g, '')}000Z${id}`;
  return { id, trace_id: traceId, dotted_order: order };
}

function buildPostFields({ project, inputs, startMs }: Entry) {
  return {
    name: `of ${project}`,
    run_type: 'chain',
    session_name: project,
    start_time: new Date(startMs).toISOString(),
    inputs: { text: inputs },
  };
}
