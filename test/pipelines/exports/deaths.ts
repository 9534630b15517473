import type { ObjectStore } from '../../../infra/objects/object-store.ts';
import type { ChunkSource, ExportWorkerDeps } from '../../../pipelines/exports/export-deps.ts';

/** The call at which a worker dies: before or after the given call (1st, 2nd, …) of a step with external effects. */
export interface Death {
  readonly step: 'count' | 'find' | 'read' | 'encode' | 'upload' | 'upload in parts' | 'record';
  readonly when: 'before' | 'after';
  readonly time: number;
}

/** All deaths of an export run with four parts. Its runs are counted twice. */
export const deaths: readonly Death[] = [
  ...(['count', 'find', 'read', 'encode'] as const).flatMap((step) =>
    (step === 'count' ? [1, 2] : [1, 2, 3]).map((time) => ({ step, when: 'before', time }) as const),
  ),
  ...(['upload', 'upload in parts', 'record'] as const).flatMap((step) =>
    (['before', 'after'] as const).flatMap((when) => [1, 2, 4].map((time) => ({ step, when, time }) as const)),
  ),
];

/**
 * Returns dependencies that call `die` at that step. If `die` stands for a crash, it never returns; otherwise the step
 * continues.
 */
export function createDyingDeps(deps: ExportWorkerDeps, death: Death, die: () => Promise<unknown>): ExportWorkerDeps {
  let count = 0;
  let uploads = 0;
  const maybeDie = async (step: Death['step'], when: Death['when']) => {
    if (step !== death.step || when !== death.when || ++count < death.time) return;
    await die();
  };
  const around = <Args extends unknown[], Result>(step: Death['step'], work: (...args: Args) => Promise<Result>) => {
    return async (...args: Args) => {
      await maybeDie(step, 'before');
      const result = await work(...args);
      await maybeDie(step, 'after');
      return result;
    };
  };
  return {
    ...deps,
    openSource: (...scope) => {
      const source: ChunkSource<unknown> = deps.openSource(...scope);
      return {
        count: around('count', source.count),
        find: around('find', source.find),
        read: around('read', source.read),
        encode: around('encode', source.encode),
        close: source.close,
      };
    },
    openStore: async (destination) => {
      const store = await deps.openStore(destination);
      const upload: ObjectStore['upload'] = async (key, path, options) => {
        await maybeDie('upload', 'before');
        await options?.recordUpload?.('upload of the one who dies');
        await maybeDie('upload in parts', 'before');
        const uploaded = await store.upload(key, path, { signal: options?.signal });
        uploads += 1;
        await maybeDie('upload', 'after');
        await maybeDie('upload in parts', 'after');
        return uploaded;
      };
      return { ...store, upload };
    },
    database: {
      ...deps.database,
      // Counts only transactions that record a file; these come after an upload.
      transaction: ((work, options) =>
        uploads === 0
          ? deps.database.transaction(work, options)
          : around('record', deps.database.transaction)(
              work as never,
              options,
            )) as ExportWorkerDeps['database']['transaction'],
    },
  };
}
