import type { Logger } from '../telemetry/logger.ts';
import { startClickhouse } from './clickhouse/start-clickhouse.ts';
import type { DataFolder } from './data-folder.ts';
import { startPostgres } from './postgres/start-postgres.ts';
import type { EngineExit } from './supervise-engine.ts';

export interface EmbeddedEngines {
  /** URL of ClickHouse, as `http://user:password@host:port/database`. Set if ClickHouse was started. */
  readonly clickhouseUrl?: string;
  /** URL of Postgres, as `postgres://user:password@host:port/database`. Set if Postgres was started. */
  readonly databaseUrl?: string;
  /**
   * Resolves with the name of an engine when that engine has ended permanently. Never resolves if no engine was
   * started.
   */
  readonly exited: Promise<EngineExit & { readonly engine: string }>;
  /** Stops the engines. Resolves when they have exited. */
  stop(): Promise<void>;
}

/**
 * Starts the required engines concurrently. Resolves when they are ready. If one engine fails to start, the other
 * engine is stopped.
 *
 * @throws ENGINE_PACKAGE_MISSING, ENGINE_START_FAILED.
 */
export async function startEmbedded(options: {
  readonly folder: DataFolder;
  readonly needs: { readonly clickhouse: boolean; readonly database: boolean };
  readonly logger?: Logger;
  /** See {@link startPostgres}. */
  readonly disableFsync?: boolean;
}): Promise<EmbeddedEngines> {
  const { needs, logger } = options;
  const settings = { folder: options.folder.path, ...(logger ? { logger } : {}) };
  const pendingStarts = [
    needs.clickhouse ? startClickhouse(settings) : undefined,
    needs.database ? startPostgres({ ...settings, disableFsync: options.disableFsync ?? false }) : undefined,
  ] as const;
  const started = (await Promise.allSettled(pendingStarts)).flatMap((start) =>
    start.status === 'fulfilled' && start.value ? [start.value] : [],
  );
  const stopAll = async () => void (await Promise.all(started.map((engine) => engine.stop())));
  try {
    const [clickhouse, postgres] = await Promise.all(pendingStarts);
    const named = (engine: string, exited: Promise<EngineExit> | undefined) =>
      exited ? [exited.then((exit) => ({ ...exit, engine }))] : [];
    return {
      ...(clickhouse ? { clickhouseUrl: clickhouse.url } : {}),
      ...(postgres ? { databaseUrl: postgres.url } : {}),
      exited: Promise.race([...named('ClickHouse', clickhouse?.exited), ...named('Postgres', postgres?.exited)]),
      stop: stopAll,
    };
  } catch (error) {
    await stopAll();
    throw error;
  }
}
