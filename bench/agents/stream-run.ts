import { type Dispatcher, request } from 'undici';

export type Headers = Readonly<Record<string, string>>;

export interface StreamedRun {
  /** Milliseconds from the request to the first event that the graph wrote. */
  readonly firstMs: number;
  /** Milliseconds from the request to the end of the stream. */
  readonly fullMs: number;
}

interface Target {
  readonly url: string;
  readonly headers: Headers;
}

const withinMs = 300_000;
const frame = Buffer.from('event: custom\n');

/** Creates a thread. @returns its id. */
export async function createThread(target: Target, dispatcher: Dispatcher): Promise<string> {
  const thread = await ask<{ thread_id: string }>(target, dispatcher, '/threads', {});
  return thread.thread_id;
}

/** Posts `body`. @throws on a status other than 2xx. */
export async function ask<Answer>(
  { url, headers }: Target,
  dispatcher: Dispatcher,
  path: string,
  body: object,
): Promise<Answer> {
  const answer = await request(`${url}${path}`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify(body),
    dispatcher,
  });
  const text = await answer.body.text();
  if (answer.statusCode >= 300) throw new Error(`POST ${path}: ${answer.statusCode} ${text.slice(0, 500)}`);
  return (text === '' ? undefined : JSON.parse(text)) as Answer;
}

/** Starts a run of the graph and reads its stream to the end. @throws unless it contains each event of the graph. */
export async function streamRun(
  { url, headers }: Target,
  dispatcher: Dispatcher,
  threadId: string,
  events: number,
  pauseMs?: number,
): Promise<StreamedRun> {
  const began = performance.now();
  const answer = await request(`${url}/threads/${threadId}/runs/stream`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify({ assistant_id: 'burst', input: { events, pauseMs }, stream_mode: 'custom' }),
    dispatcher,
    signal: AbortSignal.timeout(withinMs),
  });
  let firstMs = 0;
  let seen = 0;
  let rest: Buffer = Buffer.alloc(0);
  let last = '';
  for await (const chunk of answer.body as AsyncIterable<Buffer>) {
    const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    let at = 0;
    for (let found = bytes.indexOf(frame); found >= 0; found = bytes.indexOf(frame, at)) {
      if (seen++ === 0) firstMs = performance.now() - began;
      at = found + frame.length;
    }
    // The beginning of a frame may be at the end of a chunk.
    rest = bytes.subarray(Math.max(at, bytes.length - frame.length + 1));
    last = chunk.subarray(-500).toString();
  }
  if (answer.statusCode !== 200 || seen !== events) {
    throw new Error(`${url}: ${answer.statusCode}, ${seen} of ${events} events; the stream ended with: ${last}`);
  }
  return { firstMs, fullMs: performance.now() - began };
}
