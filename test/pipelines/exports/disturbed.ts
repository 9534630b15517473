import type { ErrorCode } from '../../../infra/errors/catalogue.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { ExportWorkerDeps } from '../../../pipelines/exports/export-deps.ts';

export type Step = 'count' | 'find' | 'read' | 'encode' | 'upload' | 'open';
/** Called before each call of the step. */
export type Disturbance = (signal: AbortSignal | undefined) => Promise<void>;

export function createDisturbedDeps(deps: ExportWorkerDeps, step: Step, disturb: Disturbance): ExportWorkerDeps {
  return {
    ...deps,
    openSource: (...scope) => {
      const source = deps.openSource(...scope);
      return {
        ...source,
        count: async (signal) => {
          if (step === 'count') await disturb(signal);
          return source.count(signal);
        },
        find: async (after, signal) => {
          if (step === 'find') await disturb(signal);
          return source.find(after, signal);
        },
        read: async (chunk, folder, signal) => {
          if (step === 'read') await disturb(signal);
          return source.read(chunk, folder, signal);
        },
        encode: async (read, folder, signal) => {
          if (step === 'encode') await disturb(signal);
          return source.encode(read, folder, signal);
        },
      };
    },
    openStore: async (destination) => {
      if (step === 'open') await disturb(undefined);
      const store = await deps.openStore(destination);
      return {
        ...store,
        upload: async (key, path, options) => {
          if (step === 'upload') await disturb(options?.signal);
          return store.upload(key, path, options);
        },
      };
    },
  };
}

/** Parameters of the errors of {@link failingDeps}. */
export const failureParams = { step: 'write', reason: 'r', where: 'w', file: 'f', host: 'h', range: 'r', what: 'it' };

export function failingDeps(deps: ExportWorkerDeps, step: Step, code: ErrorCode): ExportWorkerDeps {
  return createDisturbedDeps(deps, step, async () => {
    throw runlakeError(code, failureParams);
  });
}
