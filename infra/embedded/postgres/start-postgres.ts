import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { runlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { BoundedLog } from '../bounded-log.ts';
import { onFreePort } from '../free-port.ts';
import { readFileIfThere, writePrivateFile } from '../private-file.ts';
import { type EngineExit, superviseEngine } from '../supervise-engine.ts';
import { findBinaries, type PostgresBinaries } from './binaries.ts';
import { ensureCluster, user } from './cluster.ts';
import { chooseLocation } from './cluster-location.ts';
import { launchServer } from './launch-server.ts';
import { endLeftovers } from './leftovers.ts';

export interface EmbeddedPostgres {
  /** `postgres://user:password@127.0.0.1:port/database`; does not change when the engine restarts. */
  readonly url: string;
  /** Resolves when the engine has ended permanently. Never rejects. */
  readonly exited: Promise<EngineExit>;
  stop(): Promise<void>;
}

export interface PostgresOptions {
  /** The data folder; the caller holds its lock. */
  readonly folder: string;
  /** Default: a free port. */
  readonly port?: number;
  readonly logger?: Logger;
  /** Pause between two liveness probes; default: 5 s. */
  readonly probeEveryMs?: number;
  /** Default: the npm package. */
  readonly build?: PostgresBinaries;
  /** Turns `fsync` off, for tests: commits survive a crash of the engine, but not of the machine. Default: false. */
  readonly isThrowAway?: boolean;
  /** Folders that another account can access, if Runlake runs as root; see `place.ts`. */
  readonly sharedFolders?: readonly string[];
}

const database = 'runlake';
const logBytes = 5 * 1024 * 1024;

/**
 * Starts a Postgres server in a child process, on a free loopback port, with durable data in the data folder and a
 * stored password. Resolves when the server is ready; a server that exits unexpectedly is restarted.
 *
 * @throws ENGINE_PACKAGE_MISSING, ENGINE_START_FAILED with the engine's last error.
 */
export async function startPostgres(options: PostgresOptions): Promise<EmbeddedPostgres> {
  const { folder, logger, isThrowAway = false } = options;
  const location = chooseLocation(folder, options.build ?? findBinaries(), options.sharedFolders);
  const { dataFolder } = location;
  const password = keepPassword(folder, dataFolder);
  await ensureCluster({ ...location, password });
  location.remember();

  const log = new BoundedLog(join(folder, 'postgres.log'), logBytes);
  let { port } = options;
  const launch = async () => {
    await endLeftovers(dataFolder);
    const launchOn = (on: number) =>
      launchServer({ ...location, port: on, password, database, isThrowAway, onLine: (line) => log.write(line) });
    if (port !== undefined) return launchOn(port);
    return onFreePort(async (free) => {
      const server = await launchOn(free);
      port = free;
      return server;
    });
  };
  const engine = await superviseEngine('Postgres', launch, logger, options.probeEveryMs);
  return {
    url: `postgres://${user}:${password}@127.0.0.1:${port}/${database}`,
    exited: engine.exited,
    stop: () => engine.stop(),
  };
}

/** The password is stored before the cluster is created, so that a cluster never exists without a stored password. */
function keepPassword(folder: string, dataFolder: string): string {
  const path = join(folder, 'postgres.password');
  const kept = readFileIfThere(path)?.trim();
  if (kept) return kept;
  if (existsSync(dataFolder)) {
    throw runlakeError('ENGINE_START_FAILED', {
      engine: 'Postgres',
      reason: `${path} with its password does not exist`,
    });
  }
  const made = randomBytes(24).toString('base64url');
  writePrivateFile(path, `${made}\n`);
  return made;
}
