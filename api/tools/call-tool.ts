/**
 * Calls of tools within their limits.
 *
 * Invariant: of each key, at most {@link CallLimits.callsPerKey} calls run at once, so a flood of one key does not delay
 * the calls of another. Further calls of the key wait, in order, up to {@link CallLimits.waitingPerKey}; beyond, they
 * fail. A call fails after {@link CallLimits.timeoutMs}, counting its wait.
 */
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { histogram } from '../../infra/telemetry/metrics.ts';
import { raceWithAbort } from '../../infra/timeouts/with-timeout.ts';
import { readArguments } from './parameters.ts';
import { buildFailure, buildResult, type JsonValue, type Tool, type ToolContext } from './tool.ts';

export interface CallLimits {
  readonly timeoutMs: number;
  /** Maximum size of an answer as JSON: the text of a result and its structured content. */
  readonly maxAnswerBytes: number;
  readonly callsPerKey: number;
  readonly waitingPerKey: number;
}

const durations = histogram(
  'runlake_tool_call_duration_seconds',
  'Duration of the calls of a tool, by outcome (ok or error).',
  ['tool', 'outcome'],
  [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
);

/** The running and waiting calls of each key. */
export class CallSlots {
  readonly #limits: CallLimits;
  readonly #keys = new Map<string, { running: number; readonly waiting: Set<() => void> }>();

  constructor(limits: CallLimits) {
    this.#limits = limits;
  }

  /** @throws TOOL_CALLS_LIMITED; the reason of `signal` if it is aborted meanwhile. */
  async run<Result>(keyId: string, signal: AbortSignal, work: () => Promise<Result>): Promise<Result> {
    const calls = this.#keys.get(keyId) ?? { running: 0, waiting: new Set() };
    this.#keys.set(keyId, calls);
    if (calls.running >= this.#limits.callsPerKey) {
      if (calls.waiting.size >= this.#limits.waitingPerKey)
        throw runlakeError('TOOL_CALLS_LIMITED', { limit: this.#limits.callsPerKey });
      await waitForSlot(calls.waiting, signal);
    } else calls.running += 1;
    try {
      return await work();
    } finally {
      const [next] = calls.waiting;
      if (next) next();
      else calls.running -= 1;
      if (calls.running === 0) this.#keys.delete(keyId);
    }
  }
}

/** Resolves when a finished call hands over its slot. */
function waitForSlot(waiting: Set<() => void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const leave = () => {
      waiting.delete(grant);
      signal.removeEventListener('abort', abort);
    };
    const grant = () => {
      leave();
      resolve();
    };
    const abort = () => {
      leave();
      reject(signal.reason);
    };
    waiting.add(grant);
    signal.addEventListener('abort', abort);
    if (signal.aborted) abort();
  });
}

export interface ToolCall {
  readonly tool: Tool;
  readonly values: Readonly<Record<string, unknown>>;
  /** Identifies the key, for the limit of its calls. */
  readonly keyId: string;
  /** Aborted when the client cancels the call or disconnects. */
  readonly signal: AbortSignal;
  /** @param signal aborted when the call is cancelled or takes too long. */
  readonly openContext: (signal: AbortSignal) => ToolContext;
  readonly logger: Pick<Logger, 'warn'>;
}

/** Calls a tool. Never rejects: a failure is a result with the reason. */
export async function callTool(call: ToolCall, limits: CallLimits, slots: CallSlots): Promise<CallToolResult> {
  const { tool } = call;
  const stopTimer = durations.startTimer({ tool: tool.name });
  try {
    const output = await runWithinLimits(call, limits, slots, (signal) => runTool(call, signal));
    const result = requireAnswerSize(buildResult(output), limits);
    stopTimer({ outcome: 'ok' });
    return result;
  } catch (error) {
    stopTimer({ outcome: 'error' });
    return buildFailure(describeFailure(error, call));
  }
}

const settled = runlakeError('BAD_REQUEST', { reason: 'The call has ended.' });

/**
 * Runs `work` when the key has a free slot. The signal is also aborted when `work` has settled, for requests that it did
 * not wait for. If `work` ignores its signal, its later result is ignored.  @throws TOOL_TIMEOUT, TOOL_CALLS_LIMITED, or
 * the reason of the client's signal.
 */
export async function runWithinLimits<Result>(
  { keyId, signal: clientSignal }: Pick<ToolCall, 'keyId' | 'signal'>,
  { timeoutMs }: CallLimits,
  slots: CallSlots,
  work: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  // AbortSignal.any() and AbortSignal.timeout() cost more than the rest of a quick call.
  const ending = new AbortController();
  const { signal } = ending;
  const cancel = () => ending.abort(clientSignal.reason);
  const timer = setTimeout(() => ending.abort(runlakeError('TOOL_TIMEOUT', { limitMs: timeoutMs })), timeoutMs);
  clientSignal.addEventListener('abort', cancel);
  if (clientSignal.aborted) cancel();
  try {
    return await slots.run(keyId, signal, () => raceWithAbort(work(signal), signal));
  } finally {
    clearTimeout(timer);
    clientSignal.removeEventListener('abort', cancel);
    // An error of its own, with its stack, would take as long as the rest of a quick call.
    ending.abort(settled);
  }
}

/** Returns `answer`. @throws TOOL_ANSWER_TOO_LARGE */
export function requireAnswerSize<Answer>(answer: Answer, { maxAnswerBytes }: CallLimits): Answer {
  if (Buffer.byteLength(JSON.stringify(answer)) > maxAnswerBytes)
    throw runlakeError('TOOL_ANSWER_TOO_LARGE', { limitBytes: maxAnswerBytes });
  return answer;
}

async function runTool({ tool, values, openContext }: ToolCall, signal: AbortSignal): Promise<JsonValue | string> {
  const output = await tool.run(readArguments(tool.parameters, values), openContext(signal));
  const unknown = Object.keys(values).filter((name) => !Object.hasOwn(tool.parameters, name));
  if (unknown.length === 0 || typeof output === 'string') return output;
  const ignored = `Unknown parameters were ignored: ${unknown.join(', ').slice(0, 200)}.`;
  return { ...output, note: [output.note, ignored].filter(Boolean).join(' ') };
}

/** Returns the text of a failed call: the error and its remedy. */
function describeFailure(error: unknown, { tool, signal, logger }: ToolCall): string {
  if (signal.aborted) return 'The call was cancelled.';
  if (!isRunlakeError(error)) logger.warn({ err: error, tool: tool.name }, 'tool failed');
  const { code, message, remedy } = isRunlakeError(error) ? error : runlakeError('TOOL_FAILED', { tool: tool.name });
  if (code === 'TOOL_FOUND_NOTHING') return message;
  const words = withoutRemedy.has(code) ? message : `${message} ${remedy}`;
  return `${tool.failurePrefix ?? ''}${words}`;
}

/** The messages of these errors already contain the remedy. */
const withoutRemedy: ReadonlySet<string> = new Set(['BAD_REQUEST', 'TOOL_REQUEST_FAILED']);
