import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { openClickHouse } from '../../infra/clickhouse/client.ts';
import type { Config } from '../../infra/config/settings.ts';
import { readRunFile } from '../../infra/embedded/data-folder.ts';
import { type Database, openDatabase } from '../../infra/postgres/pool.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { settlesBeforeTimeout } from '../../infra/timeouts/with-timeout.ts';
import { trustedAuthorities } from '../../infra/tls/trusted-authorities.ts';

export interface Stores {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
  close(): Promise<void>;
}

const closeTimeoutMs = 1_000;

export interface StoreAddresses {
  readonly clickhouseUrl: string;
  readonly databaseUrl: string;
}

/** @throws TLS_FILE_UNUSABLE */
export function openStores(addresses: StoreAddresses, config: Config, logger: Logger): Stores {
  const shared = { authorities: trustedAuthorities(config), logger, timeoutMs: config.queryTimeoutMs };
  const clickhouse = openClickHouse({ ...shared, url: addresses.clickhouseUrl });
  const database = openDatabase({ ...shared, url: addresses.databaseUrl });
  return {
    clickhouse,
    database,
    close: async () => {
      // Nothing uses the stores any more. Only connections to an unresponsive server can remain open.
      await settlesBeforeTimeout(Promise.all([clickhouse.close(), database.close()]), closeTimeoutMs);
    },
  };
}

/**
 * Finds the stores for a command that runs next to an instance: the configured addresses, or those in the run file of
 * the instance that uses the data folder.
 *
 * @throws NOT_RUNNING if there is neither.
 */
export async function findStores(config: Config): Promise<StoreAddresses> {
  if (config.clickhouseUrl !== undefined && config.databaseUrl !== undefined) {
    return { clickhouseUrl: config.clickhouseUrl, databaseUrl: config.databaseUrl };
  }
  const running = await readRunFile(config.dataDir);
  return {
    clickhouseUrl: config.clickhouseUrl ?? running.clickhouseUrl,
    databaseUrl: config.databaseUrl ?? running.databaseUrl,
  };
}
