import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fault } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { BoundedLog } from '../bounded-log.ts';
import { onFreePort } from '../free-port.ts';
import { readFileIfThere, writePrivateFile } from '../private-file.ts';
import { type EngineExit, superviseEngine } from '../supervise-engine.ts';
import { findBinaries, type PostgresBinaries } from './binaries.ts';
import { ensureCluster, user } from './cluster.ts';
import { launchServer } from './launch-server.ts';
import { endLeftovers } from './leftovers.ts';
import { choosePlace } from './place.ts';

export interface EmbeddedPostgres {
  /** `postgres://user:password@127.0.0.1:port/database`; stays the same over restarts of the engine. */
  readonly url: string;
  /** Resolves when the engine has ended for good. Never rejects. */
  readonly exited: Promise<EngineExit>;
  stop(): Promise<void>;
}

export interface PostgresOptions {
  /** The data folder, whose lock the caller holds. */
  readonly folder: string;
  /** Default: a free one. */
  readonly port?: number;
  readonly logger?: Logger;
  /** Pause between two liveness probes; default: 5 s. */
  readonly probeEveryMs?: number;
  /** Default: the npm package. */
  readonly build?: PostgresBinaries;
  /** What is committed need not outlive the machine, only the engine: nothing waits for the disk. Default: false. */
  readonly isThrowAway?: boolean;
  /** Folders that another account can reach, for a process of root; see `place.ts`. */
  readonly sharedFolders?: readonly string[];
}

const database = 'runlake';
const logBytes = 5 * 1024 * 1024;

/**
 * Starts a real Postgres server in a child process, on a free loopback port, with durable data in the data folder and a
 * password that is kept beside them. It answers when this resolves, and is started again when it ends by itself.
 *
 * @throws ENGINE_PACKAGE_MISSING, ENGINE_START_FAILED with the engine's last error.
 */
export async function startPostgres(options: PostgresOptions): Promise<EmbeddedPostgres> {
  const { folder, logger, isThrowAway = false } = options;
  const place = choosePlace(folder, options.build ?? findBinaries(), options.sharedFolders);
  const { dataFolder } = place;
  const password = keepPassword(folder, dataFolder);
  await ensureCluster({ ...place, password });
  place.remember();

  const log = new BoundedLog(join(folder, 'postgres.log'), logBytes);
  let { port } = options;
  const launch = async () => {
    await endLeftovers(dataFolder);
    const launchOn = (on: number) =>
      launchServer({ ...place, port: on, password, database, isThrowAway, onLine: (line) => log.write(line) });
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

/** Written before the cluster is made with it, so that there is never a cluster whose password nobody knows. */
function keepPassword(folder: string, dataFolder: string): string {
  const path = join(folder, 'postgres.password');
  const kept = readFileIfThere(path)?.trim();
  if (kept) return kept;
  if (existsSync(dataFolder)) {
    throw fault('ENGINE_START_FAILED', { engine: 'Postgres', reason: `${path} is gone, and with it the password` });
  }
  const made = randomBytes(24).toString('base64url');
  writePrivateFile(path, `${made}\n`);
  return made;
}
