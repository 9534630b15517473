import { openWarehouse } from '../../infra/clickhouse/client.ts';
import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';
import type { Config } from '../../infra/config/settings.ts';
import { readRunFile } from '../../infra/embedded/run-file.ts';
import { type Database, openDatabase } from '../../infra/postgres/pool.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';

export interface Stores {
  readonly warehouse: Warehouse;
  readonly database: Database;
  close(): Promise<void>;
}

export interface StoreAddresses {
  readonly clickhouseUrl: string;
  readonly databaseUrl: string;
}

export function openStores(addresses: StoreAddresses, config: Config, logger: Logger): Stores {
  const warehouse = openWarehouse({ url: addresses.clickhouseUrl, logger, timeoutMs: config.queryTimeoutMs });
  const database = openDatabase({ url: addresses.databaseUrl, logger, timeoutMs: config.queryTimeoutMs });
  return {
    warehouse,
    database,
    close: async () => {
      await warehouse.close();
      await database.close();
    },
  };
}

/**
 * The stores as a command beside a running instance finds them: by the configured addresses, or by what the instance
 * on the data folder wrote into its run file.
 *
 * @throws NOT_RUNNING where neither says.
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
