import type { ErrorCode } from '../../../infra/errors/catalogue.ts';
import { fault } from '../../../infra/errors/runlake-error.ts';
import type { WorkPorts } from '../../../pipelines/exports/export-ports.ts';

export type Step = 'count' | 'find' | 'read' | 'encode' | 'upload' | 'open';
/** What happens before a step does what it does, each time. */
export type Disturbance = (signal: AbortSignal | undefined) => Promise<void>;

export function disturbedPorts(ports: WorkPorts, step: Step, disturb: Disturbance): WorkPorts {
  return {
    ...ports,
    openSource: (...scope) => {
      const source = ports.openSource(...scope);
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
        read: async (slice, folder, signal) => {
          if (step === 'read') await disturb(signal);
          return source.read(slice, folder, signal);
        },
        encode: async (read, folder, signal) => {
          if (step === 'encode') await disturb(signal);
          return source.encode(read, folder, signal);
        },
      };
    },
    openStore: async (place) => {
      if (step === 'open') await disturb(undefined);
      const store = await ports.openStore(place);
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

/** What the faults of {@link failingPorts} say. */
export const failureParams = { step: 'write', reason: 'r', where: 'w', file: 'f', host: 'h', range: 'r', what: 'it' };

export function failingPorts(ports: WorkPorts, step: Step, code: ErrorCode): WorkPorts {
  return disturbedPorts(ports, step, async () => {
    throw fault(code, failureParams);
  });
}
