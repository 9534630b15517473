import { totalmem } from 'node:os';
import { join } from 'node:path';
import { findLibrary } from '../../../infra/embedded/clickhouse/server-files.ts';
import { type EmbeddedClickhouse, startClickhouse } from '../../../infra/embedded/clickhouse/start-clickhouse.ts';
import type { LaunchOptions, Part, PartValues } from '../part.ts';

const title = 'ClickHouse';
const user = 'runlake';
const cluster = 'shards';

/**
 * The embedded ClickHouse of the npm package, run as a separate server; with `shards` 2, run as two servers of a
 * cluster.
 */
export const clickhouse: Part = {
  name: 'clickhouse',
  title,
  // HTTP ports of the two servers, then their ports for ClickHouse's native protocol.
  portCount: 4,
  async install({ clickhouseShards }) {
    findLibrary();
    return { shards: String(clickhouseShards) };
  },
  async launch(options) {
    const servers = await startShards(options);
    const exited = Promise.race(servers.map((server) => server.exited)).then(({ reason }) => reason);
    const stop = async () => void (await Promise.all(servers.map((server) => server.stop())));
    return { exited, stop };
  },
  values: ({ ports, secret, installation }): PartValues => {
    const urls = ports
      .slice(0, getShardCount(installation))
      .map((port) => `http://${user}:${secret('clickhouse')}@127.0.0.1:${port}/runlake`);
    return { url: urls.join(','), ...(urls.length > 1 && { cluster }) };
  },
  async check(values) {
    const answers = await Promise.all((values.url ?? '').split(',').map(ask));
    return answers.find((answer) => answer !== 'ready') ?? 'ready';
  },
  exports: (values): PartValues => ({
    RUNLAKE_CLICKHOUSE_URL: values.url ?? '',
    ...(values.cluster !== undefined && { RUNLAKE_CLICKHOUSE_CLUSTER: values.cluster }),
  }),
};

/** Returns the folder of a server of a cluster. It has the same structure as the folder of a single server. */
export const shardFolder = (folder: string, shard: number) => join(folder, title.toLowerCase(), `shard-${shard}`);

const getShardCount = (installation: LaunchOptions['installation']) => Number(installation.shards ?? 1);

async function startShards({
  folder,
  ports,
  secret,
  logger,
  installation,
}: LaunchOptions): Promise<EmbeddedClickhouse[]> {
  const shards = getShardCount(installation);
  const password = secret('clickhouse');
  if (shards === 1) return [await startClickhouse({ folder, port: ports[0] ?? 0, password, logger })];
  const portOfShard = ports.slice(2, 2 + shards);
  const memoryLimitBytes = Math.floor(totalmem() / 2 / shards);
  const started = await Promise.allSettled(
    portOfShard.map((tcpPort, index) =>
      startClickhouse({
        ...{
          folder: shardFolder(folder, index + 1),
          port: ports[index] ?? 0,
          password,
          logger,
        },
        ...{ memoryLimitBytes, cluster: { name: cluster, portOfShard, tcpPort } },
      }),
    ),
  );
  const servers = started.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
  const failed = started.find((each) => each.status === 'rejected');
  if (failed === undefined) return servers;
  await Promise.all(servers.map((server) => server.stop()));
  throw failed.reason;
}

async function ask(url: string): Promise<string> {
  const { username, password, origin } = new URL(url);
  try {
    const answer = await fetch(origin, {
      method: 'POST',
      body: 'SELECT 1',
      headers: { 'X-ClickHouse-User': username, 'X-ClickHouse-Key': password, Connection: 'close' },
      signal: AbortSignal.timeout(5_000),
    });
    const text = (await answer.text()).trim();
    return answer.ok && text === '1' ? 'ready' : text.slice(0, 200);
  } catch (error) {
    return error instanceof Error ? String(error.cause ?? error.message) : String(error);
  }
}
