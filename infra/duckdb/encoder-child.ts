/**
 * The encoder child process. It executes the requests of its parent one at a time, each in a new in-memory database.
 * Argument: DuckDB's memory limit in bytes.
 *
 * The child never outlives its parent. When the parent ends for any reason, the IPC channel closes and the child kills
 * itself. It does not exit normally, because a normal exit would wait for the running statement.
 */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { type DuckDBConnection, DuckDBInstance } from '@duckdb/node-api';
import {
  buildEncodeSql,
  buildListSql,
  type ChildRequest,
  type ChildResponse,
  quoteText,
  readFooter,
} from './encode-sql.ts';

const killProcess = () => process.kill(process.pid, 'SIGKILL');
process.on('disconnect', killProcess);
process.on('SIGTERM', killProcess);
process.on('SIGINT', () => {});
if (!process.connected) killProcess();

const memoryLimitBytes = Number(process.argv[2]);

process.on('message', (message: ChildRequest) => {
  handle(message).then(
    (footer) => respond({ number: message.number, footer }),
    (error: unknown) => respond({ number: message.number, reason: String(error) }),
  );
});
respond({ number: 0 });

function respond(message: ChildResponse): void {
  process.send?.(message);
}

async function handle(message: ChildRequest): Promise<ChildResponse['footer']> {
  const { folder } = message.request;
  const spill = join(folder, 'spill');
  const instance = await DuckDBInstance.create(':memory:', {
    threads: '1',
    autoinstall_known_extensions: 'false',
    autoload_known_extensions: 'false',
  });
  const connection = await instance.connect();
  try {
    await confine(connection, folder, spill);
    switch (message.kind) {
      case 'encode':
        await connection.run(buildEncodeSql(message.request));
        return await readFooter(connection, join(folder, message.request.target));
      case 'list':
        await connection.run(buildListSql(message.request));
        return undefined;
      case 'inspect':
        return await readFooter(connection, join(folder, message.request.source));
    }
  } finally {
    connection.closeSync();
    instance.closeSync();
    rmSync(spill, { recursive: true, force: true });
  }
}

/**
 * Restricts DuckDB to `folder`. The order of the statements matters: the folders must be set before external access is
 * disabled, and the configuration must be locked last.
 */
async function confine(connection: DuckDBConnection, folder: string, spill: string): Promise<void> {
  for (const setting of [
    `memory_limit = '${memoryLimitBytes}B'`,
    `temp_directory = ${quoteText(spill)}`,
    'preserve_insertion_order = true',
    `allowed_directories = [${quoteText(`${folder}/`)}]`,
    'enable_external_access = false',
    'lock_configuration = true',
  ]) {
    await connection.run(`SET ${setting}`);
  }
}
