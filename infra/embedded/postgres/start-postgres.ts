import { randomBytes } from 'node:crypto';
import { chownSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from '../../telemetry/logger.ts';
import { onFreePort } from '../free-port.ts';
import { readFileIfThere, writePrivateFile } from '../private-file.ts';
import { type EngineExit, superviseEngine } from '../supervise-engine.ts';
import { nobody } from './account.ts';
import { findBinaries, linkLibraries } from './binaries.ts';
import { ensureCluster, user } from './cluster.ts';
import { launchServer } from './launch-server.ts';

export interface EmbeddedPostgres {
  /** `postgres://user:password@127.0.0.1:port/database`; stays the same over restarts of the engine. */
  readonly url: string;
  /** Resolves when the engine has ended for good. Never rejects. */
  readonly exited: Promise<EngineExit>;
  stop(): Promise<void>;
}

const database = 'runlake';

export async function startPostgres(options: {
  readonly folder: string;
  readonly logger?: Logger;
}): Promise<EmbeddedPostgres> {
  const { folder, logger } = options;
  const { folder: binaries } = findBinaries();
  linkLibraries(binaries);
  const account = process.getuid?.() === 0 ? nobody : undefined;
  const passwordFile = join(folder, 'postgres.password');
  const password = readFileIfThere(passwordFile) ?? randomBytes(24).toString('base64url');
  writePrivateFile(passwordFile, password);
  const parent = account ? `/var/lib/runlake/${folder.replaceAll('/', '_')}` : join(folder, 'postgres');
  mkdirSync(parent, { recursive: true, mode: account ? 0o755 : 0o700 });
  if (account) chownSync(parent, account.uid, account.gid);
  const dataFolder = join(parent, 'data');
  await ensureCluster({ binaries, dataFolder, password, account });

  let port: number | undefined;
  const launch = async () => {
    const launchOn = (on: number) =>
      launchServer({
        binaries,
        dataFolder,
        account,
        port: on,
        password,
        database,
        onLine: (line) => logger?.debug({ engine: 'Postgres', line }, 'embedded engine says'),
      });
    if (port !== undefined) return launchOn(port);
    return onFreePort(async (free) => {
      const server = await launchOn(free);
      port = free;
      return server;
    });
  };
  const engine = await superviseEngine('Postgres', launch, logger);
  return {
    url: `postgres://${user}:${password}@127.0.0.1:${port}/${database}`,
    exited: engine.exited,
    stop: () => engine.stop(),
  };
}
