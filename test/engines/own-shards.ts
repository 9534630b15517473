import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getServerFiles } from '../../infra/embedded/clickhouse/server-files.ts';
import { withFreePorts } from '../../infra/embedded/free-port.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { logger as silentLogger } from '../silent-logger.ts';
import type { LaunchOptions } from '../stack/part.ts';
import { clickhouse, shardFolder } from '../stack/parts/clickhouse.ts';
import type { EngineAddresses } from './serve-addresses.ts';

export interface DedicatedShards {
  readonly addresses: Pick<EngineAddresses, 'clickhouseUrl'> & { readonly clickhouseCluster: string };
  /** Process id of the server of a shard, counted from 1. A killed server is started again at the same address. */
  serverPid(shard: number): number;
  stop(): Promise<void>;
}

/** Starts the ClickHouse servers of the native stack with this number of shards, with data in `folder`. */
export async function startDedicatedShards(
  folder: string,
  shards: number,
  logger: Logger = silentLogger,
): Promise<DedicatedShards> {
  const password = randomBytes(24).toString('base64url');
  const options = (ports: readonly number[]): LaunchOptions => ({
    ...{ folder, ports, installation: { shards: String(shards) }, secret: () => password },
    ...{ log: () => {}, logger },
  });
  let used: LaunchOptions | undefined;
  const running = await withFreePorts(clickhouse.portCount, (ports) => {
    used = options(ports);
    return clickhouse.launch(used);
  });
  const { url = '', cluster = '' } = clickhouse.values(used!);
  const serverPid = (shard: number) => {
    const { process } = getServerFiles(join(shardFolder(folder, shard), 'clickhouse'));
    return (JSON.parse(readFileSync(process, 'utf8')) as { pid: number }).pid;
  };
  return { addresses: { clickhouseUrl: url, clickhouseCluster: cluster }, serverPid, stop: () => running.stop() };
}
