import { formatTime } from '../../pipelines/ingest/run-event/times.ts';
import { anything, buildSegment } from './expected-run.ts';
import type { RunEvent, Values } from './model.ts';
import type { Random } from './random.ts';

/** An event before its project reference and its request are chosen. */
export interface Draft extends Omit<RunEvent, 'project'> {
  readonly phase: number;
}

/** A trace of one to six runs and all its events, in the order in which they happen. */
export interface History {
  readonly workspace: number;
  /** Index of the client that sends the trace. A client sends its events in order. */
  readonly client: number;
  readonly drafts: readonly Draft[];
}

const hourMicros = 3_600_000_000;
const dayMicros = 24 * hourMicros;

/** The days on which traces begin, over three years; as UTC midnights in microseconds. */
export const days: readonly number[] = Array.from(
  { length: 14 },
  (_, index) => Date.UTC(2022, 6, 1) * 1_000 + Math.floor((index * 1_095) / 13) * dayMicros,
);

/** Returns a moment on one of the days: a random one, or the beginning or end of an hour or a day. */
function moment(random: Random, of: readonly number[]): number {
  const day = random.pick(of);
  const hour = day + random.int(24) * hourMicros;
  return random.pick([day, day + dayMicros - 1, hour, hour + hourMicros - 1, hour + random.int(hourMicros)]);
}

interface Run {
  readonly id: string;
  readonly parent: Run | undefined;
  readonly keyMicros: number;
  readonly dottedOrder: string;
  /** Time of the first segment; for some children it differs from that of the root. */
  readonly traceMicros: number;
}

export function makeHistory(random: Random, options: { workspace: number; client: number; phases: number }): History {
  const traceId = random.uuid();
  const first = random.int(options.phases);
  // Most traces of one phase fall into few weeks, because an insert over many weeks is expensive in ClickHouse.
  const defaults = days.filter((_, index) => index % options.phases === first);
  const runs = makeRuns(random, traceId, random.chance(0.95) ? defaults : days);
  // Of some traces, only a child ever arrives.
  const arrivingRuns =
    runs.length > 1 && random.chance(0.08) ? [runs[random.between(1, runs.length - 1)] as Run] : runs;
  const events = arrivingRuns.flatMap((run) => makeEvents(random, run));
  const ordered = random.chance(0.5) ? random.shuffled(events) : events;
  const phases = ordered
    .map(() => (random.chance(0.7) ? first : random.between(first, options.phases - 1)))
    .sort((a, b) => a - b);
  const drafts = ordered.map(
    ({ run, kind, values }, index): Draft => ({
      kind,
      workspace: options.workspace,
      traceId,
      runId: run.id,
      parentId: run.parent?.id,
      dottedOrder: run.dottedOrder,
      keyMicros: run.keyMicros,
      traceMicros: run.traceMicros,
      values,
      phase: phases[index] as number,
    }),
  );
  return { workspace: options.workspace, client: options.client, drafts };
}

function makeRuns(random: Random, traceId: string, of: readonly number[]): Run[] {
  const traceMicros = moment(random, of);
  const root = { id: traceId, parent: undefined, keyMicros: traceMicros, traceMicros };
  const runs: Run[] = [{ ...root, dottedOrder: buildSegment(traceMicros, traceId) }];
  for (let count = random.pick([0, 0, 1, 2, 3, 5]); count > 0; count--) {
    const parent = random.pick(runs);
    const id = random.uuid();
    const keyMicros = parent.keyMicros + random.int(600_000_000);
    const rootSegmentMicros = random.chance(0.1) ? moment(random, of) : traceMicros;
    const above = parent.dottedOrder.replace(/^[^Z]*Z/, buildSegment(rootSegmentMicros, ''));
    const dottedOrder = `${above}.${buildSegment(keyMicros, id)}`;
    runs.push({ id, parent, keyMicros, dottedOrder, traceMicros: rootSegmentMicros });
  }
  return runs;
}

/** Returns the events of a run, which is posted up to three times or never, and patched up to three times. */
function makeEvents(random: Random, run: Run): { run: Run; kind: 'post' | 'patch'; values: Values }[] {
  const posts = random.pick([0, 1, 1, 1, 1, 1, 2, 2, 3]);
  const patches = random.between(posts === 0 ? 1 : 0, 3);
  const kinds = [...Array<'post'>(posts).fill('post'), ...Array<'patch'>(patches).fill('patch')];
  return kinds.map((kind) => ({ run, kind, values: makeValues(random, kind, run.keyMicros) }));
}

const runTypes = ['chain', 'llm', 'tool', 'retriever', 'embedding', 'prompt', 'parser'];
const quoted = (text: string) => JSON.stringify(text);

function makeValues(random: Random, kind: 'post' | 'patch', keyMicros: number): Values {
  const values: Record<string, string> = {};
  const addSometimes = (name: string, postProbability: number, patchProbability: number, value: () => string) => {
    if (random.chance(kind === 'post' ? postProbability : patchProbability)) values[name] = value();
  };
  addSometimes('name', 0.95, 0.1, () =>
    quoted(`run ${random.int(1_000)} ${random.pick(['', 'é', '語', '👩‍👧', '"\\'])}`),
  );
  addSometimes('run_type', 0.9, 0.1, () => quoted(random.pick(runTypes)));
  // Stock SDKs round the times of the body and of dotted_order differently.
  addSometimes('start_time', 0.9, 0.3, () => quoted(formatTime(keyMicros + random.pick([0, 0, 0, 1, 999]))));
  addSometimes('end_time', 0.2, 0.8, () => quoted(formatTime(keyMicros + random.between(1_000, 60_000_000))));
  addSometimes('inputs', 0.9, 0.2, () => someJson(random));
  addSometimes('outputs', 0.2, 0.8, () => someJson(random));
  addSometimes('extra', 0.5, 0.2, () => someJson(random));
  addSometimes('events', 0.2, 0.2, () => `[${someJson(random)}]`);
  addSometimes('serialized', 0.1, 0.05, () => someJson(random));
  addSometimes('tags', 0.2, 0.1, () => random.pick(['[]', '["a"]', '["a", "b c","é"]']));
  addSometimes('error', 0.02, 0.1, () => random.pick([quoted(`no ${random.int(1_000)}`), '"\\ud800 \\u0000"', '""']));
  addSometimes('reference_example_id', 0.1, 0.05, () => quoted(random.uuid()));
  if (random.chance(0.2) && (values.run_type === undefined || values.run_type === '"llm"')) {
    const [input, output] = [random.int(1_000), random.int(1_000)];
    values.outputs = `{"usage_metadata":{"input_tokens":${input},"output_tokens":${output}},"n":${random.int(1e9)}}`;
    Object.assign(values, {
      prompt_tokens: `${input}`,
      completion_tokens: `${output}`,
      total_tokens: `${input + output}`,
    });
  }
  return values;
}

function someJson(random: Random): string {
  const number = random.int(1e9);
  return random.pick([
    `{"n":${number}}`,
    `{ "n" : ${number} ,\t"s":"é語👩‍👩‍👧"}`,
    `{"big":${number}12345678901234567890,"e":1E400,"f":0.10,"m":-0}`,
    `{"s":"\\ud800 ${number}","nul":"a\\u0000b"}`,
    `{"__proto__":{"x":${number}},"a":1,"a":2}`,
    `{"a":null,"b":[],"c":{},"d":[[{"e":[true,false,${number}]}]]}`,
    `{"text":"${'x'.repeat(random.int(3_000))}","n":${number}}`,
    '{}',
  ]);
}

/** Converts the event to one that an OpenTelemetry exporter would send, with fewer fields. */
export function toSpanEvent<E extends Omit<RunEvent, 'project'>>(event: E): E {
  const started = event.values.start_time ?? quoted(formatTime(event.keyMicros));
  const { name = '"span"', end_time } = event.values;
  const values = { name, run_type: '"chain"', start_time: started, extra: anything, ...(end_time && { end_time }) };
  return { ...event, values };
}
