import { randomBytes } from 'node:crypto';
import { formatDottedOrderSegment } from '../../pipelines/ingest/run-event/dotted-order.ts';
import { formatTime } from '../../pipelines/ingest/run-event/times.ts';

/** A run as a client has it before encoding, and as a store has it after parsing. */
export interface LoadRun {
  readonly id: string;
  readonly traceId: string;
  readonly dottedOrder: string;
  readonly startTimeMicros: number;
  readonly traceTimeMicros: number;
  readonly main: string;
  readonly inputs: string;
  readonly outputs: string;
}

export const runsPerBody = 100;
const runsPerTrace = 10;
const boundary = '----RunlakeBenchBoundary';
export const multipartType = `multipart/form-data; boundary=${boundary}`;

/** `count` runs of 1 KB of JSON in traces of ten: a root and nine children, started now. */
export function makeRuns(count: number): LoadRun[] {
  const runs: LoadRun[] = [];
  let root: LoadRun | undefined;
  for (let index = 0; index < count; index++) {
    const id = uuid();
    const startTimeMicros = Date.now() * 1_000 + (index % 1_000);
    const parent = index % runsPerTrace === 0 ? undefined : root;
    const segment = formatDottedOrderSegment(startTimeMicros, id);
    const dottedOrder = parent ? `${parent.dottedOrder}.${segment}` : segment;
    const run: LoadRun = {
      id,
      traceId: parent?.id ?? id,
      dottedOrder,
      startTimeMicros,
      traceTimeMicros: parent?.startTimeMicros ?? startTimeMicros,
      main: JSON.stringify({
        id,
        trace_id: parent?.id ?? id,
        dotted_order: dottedOrder,
        ...(parent && { parent_run_id: parent.id }),
        name: 'step of the agent',
        run_type: parent ? 'tool' : 'chain',
        start_time: `${formatTime(startTimeMicros)}Z`,
        end_time: `${formatTime(startTimeMicros + 250_000)}Z`,
        session_name: 'bench',
        extra: { metadata: { revision: 'a1b2c3d', thread_id: `thread-${index % 97}` } },
      }),
      inputs: JSON.stringify({ messages: [{ role: 'user', content: words(300) }] }),
      outputs: JSON.stringify({ output: { role: 'assistant', content: words(150), finish_reason: 'stop' } }),
    };
    if (!parent) root = run;
    runs.push(run);
  }
  return runs;
}

/** Multipart bodies with three parts a run, as stock SDKs send them. */
export function multipartBody(runs: readonly LoadRun[]): Buffer {
  const parts = runs.flatMap(({ id, main, inputs, outputs }) => [
    part(`post.${id}`, main),
    part(`post.${id}.inputs`, inputs),
    part(`post.${id}.outputs`, outputs),
  ]);
  return Buffer.from(`${parts.join('')}--${boundary}--\r\n`);
}

function part(name: string, json: string): string {
  const length = Buffer.byteLength(json);
  return `--${boundary}\r\nContent-Disposition: form-data; name="${name}"\r\nContent-Type: application/json; length=${length}\r\n\r\n${json}\r\n`;
}

let pool = Buffer.alloc(0);
let used = 0;

function uuid(): string {
  if (used + 16 > pool.length) {
    pool = randomBytes(64 * 1024);
    used = 0;
  }
  const hex = pool.toString('hex', used, used + 16);
  used += 16;
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-7${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20)}`;
}

const vocabulary =
  'the agent reads a page and answers what it found there with two sources for each of its claims'.split(' ');

function words(bytes: number): string {
  let text = '';
  while (text.length < bytes) text += `${vocabulary[Math.floor(Math.random() * vocabulary.length)]} `;
  return text.slice(0, bytes);
}
