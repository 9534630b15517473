/**
 * Collects the child runs of one graph run in the worker: receives the callbacks and reports the runs to the parent
 * process in batches.
 *
 * Invariant: each reported run is a descendant of the root and is reported once. The collector holds only open runs and
 * the runs that changed since the last flush.
 *
 *   1. When a run begins, its `dotted_order` is fixed, and its inputs are serialised at once, because the graph may
 *      modify them later.
 *   2. When a run ends, its outputs are serialised. A run that began and ended between two flushes is reported as one
 *      post; any other run is reported as a post and a patch.
 *   3. A flush follows one second after the first change, or earlier if the changes are large.
 *   4. `close` ends open runs with the given reason and flushes. Later callbacks are ignored.
 *
 * If the process dies, unflushed changes are lost, and the parent process ends the runs that were reported as open.
 */
import { formatDottedOrderSegment } from '../../ingest/run-event/dotted-order.ts';
import { runTypes } from '../../ingest/run-event/run-event.ts';
import { formatTime } from '../../ingest/run-event/times.ts';
import type { ChildRun, ChildRunBatch, TraceInstructions } from './trace-order.ts';

const flushIntervalMs = 1_000;
const flushCharacters = 256 * 1024;
/** Maximum length of an error with its stack, in characters. Longer errors are truncated. */
const maxErrorCharacters = 64 * 1024;

/** The start of a run, as reported by its callback. */
export interface StartedRun {
  readonly id: string;
  readonly parentId: string | undefined;
  readonly name: string;
  readonly type: string;
  readonly inputs: unknown;
  readonly tags: readonly string[];
  readonly metadata: Readonly<Record<string, unknown>>;
  /** Fields of `extra` other than the metadata. */
  readonly extra?: object | undefined;
  readonly serialized?: unknown;
  /**
   * The `dotted_order` of the run, if the `langsmith` package has computed it. It is used only if it lies below the
   * root of this trace.
   */
  readonly order?: string | undefined;
  /** Whether the inputs are known only at the end of the run. */
  readonly hasDeferredInputs?: boolean | undefined;
}

export interface RunEnding {
  readonly outputs?: unknown;
  readonly error?: string | undefined;
  readonly inputs?: unknown;
  readonly metadata?: object | undefined;
  readonly extra?: object | undefined;
}

/** A run that has begun but has not ended. */
export type OpenRun = Pick<StartedRun, 'id' | 'name' | 'type' | 'tags' | 'metadata'> & { readonly order: string };

interface CollectedRun extends StartedRun {
  readonly order: string;
  readonly startMicros: number;
  /** Whether inputs or outputs were omitted because of a limit. */
  lacksValues: boolean;
  inputsText: string | undefined;
  firstTokenMicros: number | undefined;
  sent: boolean;
  end: (RunEnding & { readonly micros: number; readonly outputsText: string | undefined }) | undefined;
}

export interface CollectorOptions {
  readonly order: TraceInstructions;
  readonly hidesInputs: boolean;
  readonly hidesOutputs: boolean;
  readonly onFlush: (runs: ChildRunBatch) => void;
}

export class ChildRunCollector {
  readonly rootId: string;
  readonly #options: CollectorOptions;
  readonly #open = new Map<string, CollectedRun>();
  /** Runs that began or ended since the last flush. */
  #changed = new Set<CollectedRun>();
  #changedCharacters = 0;
  #valueCharacters = 0;
  #count = 0;
  #droppedRuns = 0;
  #droppedValues = 0;
  #lastMicros: number;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: CollectorOptions) {
    this.#options = options;
    this.rootId = options.order.root.slice(-36);
    this.#lastMicros = options.order.rootMicros;
  }

  /**
   * Returns the open run with this `id`, or the root if no such run is open. Runs with an unknown parent are therefore
   * placed below the root.
   */
  find(id: string): OpenRun {
    const { root } = this.#options.order;
    return (
      this.#open.get(id) ?? { id: this.rootId, name: 'LangGraph', type: 'chain', tags: [], metadata: {}, order: root }
    );
  }

  begin(run: StartedRun): void {
    if (this.#isClosed || run.id === this.rootId || this.#open.has(run.id)) return;
    const { maxRuns, root } = this.#options.order;
    if (this.#count >= maxRuns) {
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
    const initialState = {
      inputsText: undefined,
      firstTokenMicros: undefined,
      sent: false,
      lacksValues: false,
      end: undefined,
    };
    const collected: CollectedRun = { ...run, type, order, startMicros, ...initialState };
    if (!run.hasDeferredInputs) collected.inputsText = this.#encodeInputs(collected, run.inputs);
    this.#open.set(run.id, collected);
    this.#markChanged(collected, collected.inputsText);
  }

  end(id: string, ending: RunEnding): void {
    const collected = this.#open.get(id);
    if (collected === undefined || this.#isClosed) return;
    this.#open.delete(id);
    if (ending.inputs !== undefined && !collected.sent)
      collected.inputsText = this.#encodeInputs(collected, ending.inputs);
    collected.end = { ...ending, micros: this.#now(), outputsText: this.#encodeOutputs(collected, ending.outputs) };
    this.#markChanged(collected, collected.end.outputsText);
  }

  /** Records the time of the first token of a model run. */
  token(id: string): void {
    const collected = this.#open.get(id);
    if (collected !== undefined) collected.firstTokenMicros ??= this.#now();
  }

  close(reason: string): void {
    for (const id of [...this.#open.keys()]) this.end(id, { error: reason });
    this.#isClosed = true;
    this.#flush();
  }

  #markChanged(collected: CollectedRun, text: string | undefined): void {
    this.#changed.add(collected);
    this.#changedCharacters += 1_000 + (text?.length ?? 0);
    if (this.#changedCharacters >= flushCharacters) this.#flush();
    else this.#timer ??= setTimeout(() => this.#flush(), flushIntervalMs).unref();
  }

  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const changed = this.#changed;
    this.#changed = new Set();
    this.#changedCharacters = 0;
    const runs: ChildRun[] = [];
    for (const collected of changed) {
      if (collected.hasDeferredInputs && collected.end === undefined) continue;
      runs.push(this.#encodeRun(collected));
      collected.sent = true;
      collected.inputsText = undefined;
    }
    const marks = { droppedRuns: this.#droppedRuns, droppedValues: this.#droppedValues };
    if (runs.length > 0 || marks.droppedRuns > 0) this.#options.onFlush({ runs, ...marks });
  }

  #encodeInputs(collected: CollectedRun, value: unknown): string | undefined {
    return this.#options.hidesInputs ? undefined : this.#encodeValue(collected, value, 'input');
  }

  #encodeOutputs(collected: CollectedRun, value: unknown): string | undefined {
    return this.#options.hidesOutputs || value === undefined
      ? undefined
      : this.#encodeValue(collected, value, 'output');
  }

  #encodeValue(collected: CollectedRun, value: unknown, name: string): string | undefined {
    const { values, maxCharacters, maxRunBytes } = this.#options.order;
    if (!values) return undefined;
    if (this.#valueCharacters < maxCharacters) {
      const text = encodeTraceObject(value, name);
      if (text.length <= maxRunBytes / 2) {
        this.#valueCharacters += text.length;
        return text;
      }
    }
    this.#droppedValues += 1;
    collected.lacksValues = true;
    return undefined;
  }

  #encodeRun(collected: CollectedRun): ChildRun {
    const { id, order, name, type, startMicros, tags, sent, end, inputsText, firstTokenMicros } = collected;
    const metadata = {
      ...collected.metadata,
      ...end?.metadata,
      ...(!this.#options.order.thread && { thread_id: undefined }),
      ...(collected.lacksValues && { values_left_out: true }),
    };
    const members: Record<string, string | undefined> = {
      name: JSON.stringify(name),
      run_type: JSON.stringify(type),
      start_time: JSON.stringify(formatTime(startMicros)),
      end_time: end && JSON.stringify(formatTime(end.micros)),
      error: end?.error === undefined ? undefined : JSON.stringify(end.error.slice(0, maxErrorCharacters)),
      tags: stringifyTraceValue(tags),
      extra: stringifyTraceValue({ ...collected.extra, ...end?.extra, metadata }),
      serialized: sent || collected.serialized === undefined ? undefined : stringifyTraceValue(collected.serialized),
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
      location: JSON.stringify({
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

  /**
   * Returns the current time in microseconds. Each value is greater than the previous one, so that runs that begin in
   * the same millisecond keep their order, and no run begins before the root.
   */
  #now(): number {
    this.#lastMicros = Math.max(this.#lastMicros + 1, Date.now() * 1_000);
    return this.#lastMicros;
  }
}

/**
 * Encodes the inputs or outputs of a run as JSON text in the form that the standard tracers use: LangChain objects by
 * their own `toJSON`, maps as objects, sets as arrays, errors with name and message, BigInts as strings. Cycles are
 * replaced by a marker. The result is always an object: any other value is wrapped in an object, as the member `name`.
 */
function encodeTraceObject(value: unknown, name: string): string {
  const text = stringifyTraceValue(value) ?? 'null';
  return text.startsWith('{') ? text : `{"${name}":${text}}`;
}

/**
 * Encodes a value as JSON text. Returns undefined if the value has no JSON form, for example if it is a function. Never
 * throws.
 */
function stringifyTraceValue(value: unknown): string | undefined {
  try {
    return JSON.stringify(value, toPlain);
  } catch {
    try {
      return JSON.stringify(value, createCycleReplacer());
    } catch (error) {
      return JSON.stringify({ unreadable: error instanceof Error ? error.message : String(error) });
    }
  }
}

function toPlain(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString();
  if (typeof value !== 'object' || value === null) return value;
  if (value instanceof Error) return { name: value.name, message: value.message };
  if (value instanceof Map) return Object.fromEntries(value);
  if (value instanceof Set) return [...value];
  if (value instanceof RegExp) return value.toString();
  return value;
}

/** Returns a replacer that tracks the path from the root: JSON.stringify calls it with the holder as `this`. */
function createCycleReplacer(): (this: unknown, key: string, value: unknown) => unknown {
  const path: unknown[] = [];
  return function (key, value) {
    while (path.length > 0 && path.at(-1) !== this) path.pop();
    const plain = toPlain(key, value);
    if (typeof plain !== 'object' || plain === null) return plain;
    if (path.includes(value) || path.includes(plain)) return { result: '[Circular]' };
    path.push(plain);
    return plain;
  };
}
