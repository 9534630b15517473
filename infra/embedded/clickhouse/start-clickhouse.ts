import { randomBytes } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import type { Logger } from '../../telemetry/logger.ts';
import { onFreePort } from '../free-port.ts';
import { writePrivateFile } from '../private-file.ts';
import { type EngineExit, superviseEngine } from '../supervise-engine.ts';
import { launchServer } from './launch-server.ts';
import { findLibrary } from './library.ts';
import { serverConfig, serverFiles, usersConfig } from './server-config.ts';

export interface EmbeddedClickhouse {
  /** `http://user:password@127.0.0.1:port/database`; does not change when the engine restarts. */
  readonly url: string;
  readonly database: string;
  /** Resolves when the engine has ended permanently. Never rejects. */
  readonly exited: Promise<EngineExit>;
  stop(): Promise<void>;
}

const user = 'runlake';
const database = 'runlake';
const gib = 1024 ** 3;

/**
 * Starts a ClickHouse server in a child process, on a loopback port, with data in `<folder>/clickhouse` and a password.
 * Resolves when the server is ready; a server that exits unexpectedly is restarted.
 *
 * @param port default: a free port.
 * @param password default: a new one at each start.
 * @param memoryLimitBytes memory limit of the server; default: half of the memory of the machine, at least 1 GiB.
 * @throws ENGINE_PACKAGE_MISSING, ENGINE_START_FAILED with the engine's last error.
 */
export async function startClickhouse(options: {
  readonly folder: string;
  readonly memoryLimitBytes?: number;
  readonly port?: number;
  readonly password?: string;
  readonly logger?: Logger;
  /** Pause between two liveness probes; default: 5 s. */
  readonly probeEveryMs?: number;
}): Promise<EmbeddedClickhouse> {
  const library = await findLibrary();
  const folder = join(options.folder, 'clickhouse');
  const files = serverFiles(folder);
  const { password = randomBytes(24).toString('base64url') } = options;
  mkdirSync(files.data, { recursive: true, mode: 0o700 });
  const displayName = `runlake-${randomBytes(8).toString('hex')}`;
  writePrivateFile(
    files.config,
    serverConfig(folder, options.memoryLimitBytes ?? defaultMemoryLimitBytes(), displayName),
  );
  writePrivateFile(files.users, usersConfig(user, password));

  let { port } = options;
  const launch = async () => {
    const launchOn = (on: number) => launchServer({ library, folder, port: on, user, password, database, displayName });
    if (port !== undefined) return launchOn(port);
    return onFreePort(async (free) => {
      const server = await launchOn(free);
      port = free;
      return server;
    });
  };
  const engine = await superviseEngine('ClickHouse', launch, options.logger, options.probeEveryMs);
  return {
    url: `http://${user}:${password}@127.0.0.1:${port}/${database}`,
    database,
    exited: engine.exited,
    stop: () => engine.stop(),
  };
}

function defaultMemoryLimitBytes(): number {
  // `constrainedMemory` is zero or extremely large if no limit is set.
  const allowed = process.constrainedMemory() || totalmem();
  return Math.max(gib, Math.floor(Math.min(allowed, totalmem()) / 2));
}
