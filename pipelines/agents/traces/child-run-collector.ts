/**
 * The runs inside of one run of a graph, from their callbacks to the front.
 *
 * Invariant: every run handed over lies below the root, once; what is held is the runs that are open and those of the last second.
 *
 *   1. A run begins: its place is fixed, its inputs become text at once, since a graph may change them.
 *   2. It ends: outputs likewise. What began and ended between two hand-overs is one post; else a post, then a patch.
 *   3. A hand-over follows a second after the first news, or sooner where much has gathered.
 *   4. `close` ends what is still open, with the reason, and hands the rest over. Later news are not heard.
 *
 * A process that dies takes what it had not handed over with it; what the front has as open, it ends.
 */
import { formatDottedOrderSegment } from '../../ingest/run-event/dotted-order.ts';
import { runTypes } from '../../ingest/run-event/run-event.ts';
import { formatTime } from '../../ingest/run-event/times.ts';
import { textOf, traceJson } from './trace-json.ts';
import type { ChildRun, TracedRuns, TraceOrder } from './trace-order.ts';

const handOverAfterMs = 1_000;
const handOverCharacters = 256 * 1024;
/** Longer stacks and messages say no more. */
const mostErrorCharacters = 64 * 1024;

/** A run that began, as its callback says. */
export interface BegunRun {
  readonly id: string;
  readonly parentId: string | undefined;
  readonly name: string;
  readonly type: string;
  readonly inputs: unknown;
  readonly tags: readonly string[];
  readonly metadata: Readonly<Record<string, unknown>>;
  /** Beside the metadata. */
  readonly extra?: object | undefined;
  readonly serialized?: unknown;
  /** Of a run that was placed by somebody else, below the same root. */
  readonly order?: string | undefined;
  /** Its inputs are only known at its end. */
  readonly deferred?: boolean | undefined;
}

export interface RunEnding {
  readonly outputs?: unknown;
  readonly error?: string | undefined;
  readonly inputs?: unknown;
  readonly metadata?: object | undefined;
  readonly extra?: object | undefined;
}

/** A run that began and has not ended. */
export type OpenRun = Pick<BegunRun, 'id' | 'name' | 'type' | 'tags' | 'metadata'> & { readonly order: string };

interface Held extends BegunRun {
  readonly order: string;
  readonly startMicros: number;
  /** Some of what went in or came out was left out. */
  lacksValues: boolean;
  inputsText: string | undefined;
  firstTokenMicros: number | undefined;
  sent: boolean;
  end: (RunEnding & { readonly micros: number; readonly outputsText: string | undefined }) | undefined;
}

export interface CollectorOptions {
  readonly order: TraceOrder;
  readonly hidesInputs: boolean;
  readonly hidesOutputs: boolean;
  readonly handOver: (runs: TracedRuns) => void;
}

export class ChildRunCollector {
  readonly rootId: string;
  readonly #options: CollectorOptions;
  readonly #open = new Map<string, Held>();
  /** Began or ended since the last hand-over. */
  #news = new Set<Held>();
  #newsCharacters = 0;
  #valueCharacters = 0;
  #count = 0;
  #droppedRuns = 0;
  #droppedValues = 0;
  #lastMicros: number;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: CollectorOptions) {
    this.#options = options;
    this.rootId = options.order.root.slice(-36);
    this.#lastMicros = options.order.rootMicros;
  }

  /** The run `id`, where it is one of these and goes on; else the root, which holds what has no other place. */
  find(id: string): OpenRun {
    const { root } = this.#options.order;
    return (
      this.#open.get(id) ?? { id: this.rootId, name: 'LangGraph', type: 'chain', tags: [], metadata: {}, order: root }
    );
  }

  begin(run: BegunRun): void {
    if (this.#closed || run.id === this.rootId || this.#open.has(run.id)) return;
    const { mostRuns, root } = this.#options.order;
    if (this.#count >= mostRuns) {
      this.#droppedRuns += 1;
      return;
    }
    this.#count += 1;
    const startMicros = this.#now();
    const parent = (run.parentId !== undefined && this.#open.get(run.parentId)?.order) || root;
    const order = run.order?.startsWith(`${root}.`)
      ? run.order
      : `${parent}.${formatDottedOrderSegment(startMicros, run.id)}`;
    const type = (runTypes as readonly string[]).includes(run.type) ? run.type : 'chain';
    const fresh = {
      inputsText: undefined,
      firstTokenMicros: undefined,
      sent: false,
      lacksValues: false,
      end: undefined,
    };
    const held: Held = { ...run, type, order, startMicros, ...fresh };
    if (!run.deferred) held.inputsText = this.#inputs(held, run.inputs);
    this.#open.set(run.id, held);
    this.#note(held, held.inputsText);
  }

  end(id: string, ending: RunEnding): void {
    const held = this.#open.get(id);
    if (held === undefined || this.#closed) return;
    this.#open.delete(id);
    if (ending.inputs !== undefined && !held.sent) held.inputsText = this.#inputs(held, ending.inputs);
    held.end = { ...ending, micros: this.#now(), outputsText: this.#outputs(held, ending.outputs) };
    this.#note(held, held.end.outputsText);
  }

  /** A model has said something for the first time. */
  token(id: string): void {
    const held = this.#open.get(id);
    if (held !== undefined) held.firstTokenMicros ??= this.#now();
  }

  close(reason: string): void {
    for (const id of [...this.#open.keys()]) this.end(id, { error: reason });
    this.#closed = true;
    this.#handOver();
  }

  #note(held: Held, text: string | undefined): void {
    this.#news.add(held);
    this.#newsCharacters += 1_000 + (text?.length ?? 0);
    if (this.#newsCharacters >= handOverCharacters) this.#handOver();
    else this.#timer ??= setTimeout(() => this.#handOver(), handOverAfterMs).unref();
  }

  #handOver(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const news = this.#news;
    this.#news = new Set();
    this.#newsCharacters = 0;
    const runs: ChildRun[] = [];
    for (const held of news) {
      if (held.deferred && held.end === undefined) continue;
      runs.push(this.#written(held));
      held.sent = true;
      held.inputsText = undefined;
    }
    const marks = { droppedRuns: this.#droppedRuns, droppedValues: this.#droppedValues };
    if (runs.length > 0 || marks.droppedRuns > 0) this.#options.handOver({ runs, ...marks });
  }

  #inputs(held: Held, value: unknown): string | undefined {
    return this.#options.hidesInputs ? undefined : this.#value(held, value, 'input');
  }

  #outputs(held: Held, value: unknown): string | undefined {
    return this.#options.hidesOutputs || value === undefined ? undefined : this.#value(held, value, 'output');
  }

  #value(held: Held, value: unknown, name: string): string | undefined {
    const { values, mostCharacters, mostRunBytes } = this.#options.order;
    if (!values) return undefined;
    if (this.#valueCharacters < mostCharacters) {
      const text = traceJson(value, name);
      if (text.length <= mostRunBytes / 2) {
        this.#valueCharacters += text.length;
        return text;
      }
    }
    this.#droppedValues += 1;
    held.lacksValues = true;
    return undefined;
  }

  #written(held: Held): ChildRun {
    const { id, order, name, type, startMicros, tags, sent, end, inputsText, firstTokenMicros } = held;
    const metadata = {
      ...held.metadata,
      ...end?.metadata,
      ...(!this.#options.order.thread && { thread_id: undefined }),
      ...(held.lacksValues && { values_left_out: true }),
    };
    const members: Record<string, string | undefined> = {
      name: JSON.stringify(name),
      run_type: JSON.stringify(type),
      start_time: JSON.stringify(formatTime(startMicros)),
      end_time: end && JSON.stringify(formatTime(end.micros)),
      error: end?.error === undefined ? undefined : JSON.stringify(end.error.slice(0, mostErrorCharacters)),
      tags: textOf(tags),
      extra: textOf({ ...held.extra, ...end?.extra, metadata }),
      serialized: sent || held.serialized === undefined ? undefined : textOf(held.serialized),
      events: JSON.stringify([
        { name: 'start', time: formatTime(startMicros) },
        ...(firstTokenMicros === undefined ? [] : [{ name: 'new_token', time: formatTime(firstTokenMicros) }]),
        ...(end === undefined
          ? []
          : [{ name: end.error === undefined ? 'end' : 'error', time: formatTime(end.micros) }]),
      ]),
    };
    const outputsText = end?.outputsText;
    return {
      kind: sent ? 'patch' : 'post',
      runId: id,
      place: JSON.stringify({
        id,
        trace_id: this.rootId,
        parent_run_id: order.slice(-(36 + 59), -59),
        dotted_order: order,
      }).slice(1, -1),
      members: Object.entries(members)
        .filter(([, text]) => text !== undefined)
        .map(([key, text]) => `"${key}":${text}`)
        .join(','),
      values: `${inputsText === undefined ? '' : `,"inputs":${inputsText}`}${outputsText === undefined ? '' : `,"outputs":${outputsText}`}`,
      open: end === undefined,
    };
  }

  /** Microseconds, each later than the last: so runs of the same millisecond keep their order, and none begins before the root. */
  #now(): number {
    this.#lastMicros = Math.max(this.#lastMicros + 1, Date.now() * 1_000);
    return this.#lastMicros;
  }
}
