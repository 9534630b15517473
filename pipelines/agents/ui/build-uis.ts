/**
 * Builds the UIs of a langgraph.json in the background.
 *
 * Invariant: a request for a UI waits until it is built, for a bounded time. A UI that cannot be built affects only its own
 * requests.
 *
 *   1. A child process builds one UI and sends its files. The process is killed after a time limit.
 *   2. The UIs are built one after the other. The reason for each that cannot be built is logged once.
 */
import { createHash } from 'node:crypto';
import { Type } from 'typebox';
import { Compile } from 'typebox/compile';
import { locateProgram } from '../../../infra/embedded/child-program.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { AccountSource } from '../../../infra/isolation/process-accounts.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { GraphsFile } from '../graphs/graphs-file.ts';
import { computeWorkerFrameLimits, createViolationError, type Frame, requireJson } from '../workers/frames.ts';
import { ProjectProcess } from '../workers/front/project-process.ts';
import type { UiProcessMessage, UiTask } from './ui-process.ts';

/** The files of a UI, which run in the page of a client. */
export interface BuiltUi {
  /** Hash of the files. */
  readonly version: string;
  readonly files: ReadonlyMap<string, Buffer>;
}

export interface UiBuilder {
  /** Returns a UI when it is built. @throws UI_NOT_FOUND, UI_UNUSABLE */
  get(name: string): Promise<BuiltUi>;
  /** Stops building. Resolves when no process remains. */
  stop(): Promise<void>;
}

export interface UiOptions {
  readonly file: Pick<GraphsFile, 'folder' | 'env' | 'ui' | 'uiConfig'>;
  readonly environment: Readonly<Record<string, string>>;
  readonly accounts?: AccountSource | undefined;
  /** Timeout for one UI. */
  readonly limitMs: number;
  readonly logger: Logger;
}

/** Maximum size of the files of a UI. The server keeps them in memory. */
const maxUiBytes = 16 * 1024 ** 2;
const maxReasonLength = 1_000;

export function buildUisInBackground(options: UiOptions): UiBuilder {
  const { ui, uiConfig } = options.file;
  const uis = new Map<string, Promise<BuiltUi>>();
  const stopped = new AbortController();
  let last: Promise<unknown> = Promise.resolve();
  for (const [name, path] of Object.entries(ui)) {
    const task = { folder: options.file.folder, name, path, shared: uiConfig.shared ?? [], maxBytes: maxUiBytes };
    const building = last.then(() => buildInProcess(options, task, stopped.signal));
    uis.set(name, building);
    last = building.catch((err: unknown) => {
      if (!stopped.signal.aborted) options.logger.warn({ err }, 'a UI cannot be built');
    });
  }
  return {
    async get(name) {
      const built = uis.get(name);
      if (built === undefined) throw runlakeError('UI_NOT_FOUND', { ui: name });
      return built;
    },
    async stop() {
      stopped.abort();
      await last;
    },
  };
}

function buildInProcess(
  { file, environment, accounts, limitMs }: UiOptions,
  task: UiTask,
  stopped: AbortSignal,
): Promise<BuiltUi> {
  const createError = (text: string) => {
    // Callers do not need to know where the project is.
    const reason = text.replaceAll(`${task.folder}/`, '').slice(0, maxReasonLength).replace(/\.$/, '');
    return runlakeError('UI_UNUSABLE', { ui: task.name, reason });
  };
  if (stopped.aborted) return Promise.reject(createError('the server stops'));
  return new Promise((resolve, reject) => {
    let built: BuiltUi | undefined;
    let reason: string | undefined;
    const end = (why: string) => {
      reason ??= why;
      child.kill();
    };
    const stop = () => end('the server stops');
    const timeout = setTimeout(() => end(`it took longer than ${limitMs / 1_000} s`), limitMs);
    stopped.addEventListener('abort', stop, { once: true });
    const { path: program, execArgv } = locateProgram(import.meta.url, './ui-process');
    const child = new ProjectProcess({
      program,
      execArgv,
      folder: file.folder,
      environment: { ...environment, ...file.env },
      accounts,
      limits: { ...computeWorkerFrameLimits(0), bodyBytes: maxUiBytes },
      onFrame: (frame) => {
        const message = decodeUi(frame);
        if (message.kind === 'failed') reason ??= message.reason;
        else built ??= readFiles(message.files, frame.body);
      },
      onExit: ({ code, signal, error, violation }) => {
        clearTimeout(timeout);
        stopped.removeEventListener('abort', stop);
        if (built !== undefined) return resolve(built);
        reject(
          createError(reason ?? violation ?? error?.message ?? `its process ended by ${signal ?? `code ${code}`}`),
        );
      },
    });
    child.send(task);
  });
}

/** @throws WORKER_PROTOCOL_VIOLATED unless the sizes of the files add up to `body`. */
function readFiles(list: readonly { readonly name: string; readonly bytes: number }[], body: Buffer): BuiltUi {
  // A copy, because the frame may be a part of a larger buffer.
  const content = Buffer.from(body);
  const files = new Map<string, Buffer>();
  let at = 0;
  for (const { name, bytes } of list) {
    files.set(name, content.subarray(at, at + bytes));
    at += bytes;
  }
  if (at !== content.byteLength) throw createViolationError('files that are not as large as its message says');
  return { version: createHash('sha256').update(content).digest('hex').slice(0, 16), files };
}

const messageValidator = Compile(
  Type.Union([
    Type.Object({
      kind: Type.Literal('built'),
      files: Type.Array(Type.Object({ name: Type.String(), bytes: Type.Integer({ minimum: 0 }) }), { maxItems: 100 }),
    }),
    Type.Object({ kind: Type.Literal('failed'), reason: Type.String() }),
  ]),
);

/** Validates a message. A UI may execute project code when it is built. @throws WORKER_PROTOCOL_VIOLATED */
function decodeUi({ head }: Frame): UiProcessMessage {
  requireJson(head);
  const message: unknown = JSON.parse(head.toString('utf8'));
  if (!messageValidator.Check(message)) throw createViolationError('a message that does not match its schema');
  return message as UiProcessMessage;
}
