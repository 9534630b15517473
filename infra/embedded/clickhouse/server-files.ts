/**
 * Files that the ClickHouse server reads: the library in the npm package, and the configuration in the server's folder.
 */
import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { runlakeError } from '../../errors/runlake-error.ts';
import { readLogTail } from '../child-program.ts';

const libraryPackage = '@chdb/lib-linux-x64-gnu';

/**
 * Returns the path of the engine's shared library in its npm package. Does not load the library.
 *
 * @throws ENGINE_PACKAGE_MISSING if an optional dependency is not installed, as on platforms other than Linux x64.
 */
export function findLibrary(): string {
  const find = (name: string, file: string) => {
    try {
      return createRequire(import.meta.url).resolve(file);
    } catch (cause) {
      const variable = 'RUNLAKE_CLICKHOUSE_URL';
      throw runlakeError('ENGINE_PACKAGE_MISSING', { package: name, variable }, { cause });
    }
  };
  find('ffi-rs', 'ffi-rs');
  return find(libraryPackage, `${libraryPackage}/libchdb.so`);
}

export interface ServerFiles {
  readonly data: string;
  readonly config: string;
  readonly usersConfigPath: string;
  readonly errorLog: string;
  readonly process: string;
}

export function getServerFiles(folder: string): ServerFiles {
  return {
    data: join(folder, 'data'),
    config: join(folder, 'config.xml'),
    usersConfigPath: join(folder, 'users.xml'),
    errorLog: join(folder, 'error.log'),
    process: join(folder, 'process.json'),
  };
}

/**
 * SQL of the start-up session, which keeps the server running. When this query is killed, the engine shuts down
 * gracefully.
 */
export const keepRunningSql = 'SELECT sleepEachRow(0.2) FROM system.numbers';

/**
 * Returns the last lines of the error log, without the stacks of the errors, and without the error that a graceful
 * shutdown logs: the end of the start-up session.
 */
export function readErrorLog(path: string): string[] {
  let isShutdown = false;
  return readLogTail(path).filter((line) => {
    // Other lines belong to the entry above them.
    if (/^\d{4}\.\d\d\.\d\d /.test(line))
      isShutdown = line.includes('(QUERY_WAS_CANCELLED)') && line.includes(keepRunningSql);
    return !isShutdown && !/^\d+\. .* @ 0x|^ \(version /.test(line);
  });
}

/** A cluster of servers on this machine, with one shard each. */
export interface LocalCluster {
  readonly name: string;
  /** Ports of ClickHouse's native protocol, by shard. */
  readonly portOfShard: readonly number[];
  /** Port of ClickHouse's native protocol on this server. */
  readonly tcpPort: number;
}

/**
 * Returns a server configuration for a machine that is shared with other programs: small caches and pools, two log
 * files of limited size, no system log tables (because they are written constantly), and no crash reports. Responses
 * contain the display name. Parts have no statistics of columns, which queries load and do not need, and one file for each
 * column of texts instead of two, of which a page would read each.
 */
export function buildServerConfig(
  folder: string,
  memoryLimitBytes: number,
  displayName: string,
  cluster?: LocalCluster & { readonly user: string; readonly password: string },
): string {
  const files = getServerFiles(folder);
  // With more threads than CPU cores, merges would slow down inserts and queries.
  const mergeThreads = Math.min(4, Math.max(2, availableParallelism()));
  return `<clickhouse>
  <log-level>warning</log-level>
  <logger>
    <log>${escapeXml(join(folder, 'server.log'))}</log>
    <errorlog>${escapeXml(files.errorLog)}</errorlog>
    <size>5M</size>
    <count>1</count>
  </logger>
  <users_config>${escapeXml(files.usersConfigPath)}</users_config>
  <user_files_path>${escapeXml(join(folder, 'user_files'))}</user_files_path>
  <display_name>${displayName}</display_name>
  <timezone>UTC</timezone>
  <send_crash_reports><enabled>false</enabled></send_crash_reports>
  <max_server_memory_usage>${memoryLimitBytes}</max_server_memory_usage>
  <mark_cache_size>${Math.floor(memoryLimitBytes / 16)}</mark_cache_size>
  <uncompressed_cache_size>0</uncompressed_cache_size>
  <keep_alive_timeout>30</keep_alive_timeout>
  <background_pool_size>${mergeThreads}</background_pool_size>
  <background_merges_mutations_concurrency_ratio>2</background_merges_mutations_concurrency_ratio>
  <background_schedule_pool_size>8</background_schedule_pool_size>
  <background_common_pool_size>2</background_common_pool_size>
  <background_move_pool_size>1</background_move_pool_size>
  <background_fetches_pool_size>1</background_fetches_pool_size>
  <merge_tree>
    <auto_statistics_types></auto_statistics_types>
    <string_serialization_version>single_stream</string_serialization_version>
    <number_of_free_entries_in_pool_to_execute_mutation>2</number_of_free_entries_in_pool_to_execute_mutation>
    <number_of_free_entries_in_pool_to_lower_max_size_of_merge>2</number_of_free_entries_in_pool_to_lower_max_size_of_merge>
    <number_of_free_entries_in_pool_to_execute_optimize_entire_partition>2</number_of_free_entries_in_pool_to_execute_optimize_entire_partition>
  </merge_tree>${cluster === undefined ? '' : buildClusterConfig(cluster)}
</clickhouse>
`;
}

function buildClusterConfig({
  name,
  portOfShard,
  tcpPort,
  user,
  password,
}: LocalCluster & { readonly user: string; readonly password: string }): string {
  const shards = portOfShard.map(
    (port) =>
      `<shard><replica><host>127.0.0.1</host><port>${port}</port><user>${user}</user><password>${password}</password></replica></shard>`,
  );
  return `
  <tcp_port>${tcpPort}</tcp_port>
  <remote_servers><${name}>${shards.join('')}</${name}></remote_servers>`;
}

/**
 * Returns the configuration of two users. `runlake` has the password and all permissions, except access to other
 * systems and to local files.
 *
 * `default` is the account of the start-up session and cannot have a password. It is limited to one session, and has
 * only the permissions that this session needs. The start-up session exists before the server listens and lasts until
 * the server ends. ClickHouse therefore refuses all other sessions of `default`.
 */
export function buildUsersConfig(user: string, password: string): string {
  const hash = createHash('sha256').update(password).digest('hex');
  return `<clickhouse>
  <profiles><default/><startup><max_sessions_for_user>1</max_sessions_for_user><max_concurrent_queries_for_user>1</max_concurrent_queries_for_user></startup></profiles>
  <quotas><default/></quotas>
  <users>
    <default>
      <password></password>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>startup</profile>
      <quota>default</quota>
      <grants>
        <query>GRANT SYSTEM LISTEN ON *.*</query>
        <query>GRANT SELECT ON system.numbers</query>
      </grants>
    </default>
    <${user}>
      <password_sha256_hex>${hash}</password_sha256_hex>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile>
      <quota>default</quota>
      <grants>
        <query>GRANT SHOW, SELECT, INSERT, ALTER, CREATE, DROP, UNDROP TABLE, TRUNCATE, OPTIMIZE, TABLE ENGINE, KILL QUERY, SYSTEM, INTROSPECTION, dictGet, REMOTE ON *.*</query>
      </grants>
    </${user}>
  </users>
</clickhouse>
`;
}

function escapeXml(text: string): string {
  return text.replace(/[&<>]/g, (character) => (character === '&' ? '&amp;' : character === '<' ? '&lt;' : '&gt;'));
}
