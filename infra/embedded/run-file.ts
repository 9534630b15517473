import { rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type Static, Type } from 'typebox';
import { Value } from 'typebox/value';
import { runlakeError } from '../errors/runlake-error.ts';
import { isSystemError, readFileIfThere, writePrivateFile } from './private-file.ts';
import { isSameProcess, processIdentity } from './process-identity.ts';

const RunFile = Type.Object({
  pid: Type.Integer({ minimum: 1 }),
  process: Type.String(),
  started_at: Type.String(),
  url: Type.String(),
  clickhouse_url: Type.String(),
  database_url: Type.String(),
});

/** Addresses of a running instance and its engines. They contain passwords. */
export interface RunAddresses {
  /** Main API. */
  readonly url: string;
  readonly clickhouseUrl: string;
  readonly databaseUrl: string;
}

export interface RunningInstance extends RunAddresses {
  readonly pid: number;
  /** ISO 8601, UTC. */
  readonly startedAt: string;
}

const runFilePath = (folder: string) => join(folder, 'run.json');

/** Writes `run.json` for other `runlake` commands, atomically and with mode 0600. */
export function writeRunFile(folder: string, addresses: RunAddresses): void {
  const run: Static<typeof RunFile> = {
    pid: process.pid,
    process: processIdentity(process.pid) ?? '',
    started_at: new Date(Date.now() - process.uptime() * 1_000).toISOString(),
    url: addresses.url,
    clickhouse_url: addresses.clickhouseUrl,
    database_url: addresses.databaseUrl,
  };
  writePrivateFile(runFilePath(folder), `${JSON.stringify(run, null, 2)}\n`);
}

export function removeRunFile(folder: string): void {
  rmSync(runFilePath(folder), { force: true });
}

/**
 * Reads the run file of the instance that runs on the data folder; the file of a killed instance is ignored.
 *
 * @throws NOT_RUNNING; DATA_FOLDER_UNUSABLE if this user has no permission to read the file.
 */
export async function readRunFile(path: string): Promise<RunningInstance> {
  const folder = resolve(path);
  let run: unknown;
  try {
    run = JSON.parse(readFileIfThere(runFilePath(folder)) ?? 'null');
  } catch (error) {
    if (isSystemError(error, 'EACCES')) {
      throw runlakeError('DATA_FOLDER_UNUSABLE', { folder, reason: 'it belongs to another user' }, { cause: error });
    }
    if (!(error instanceof SyntaxError)) throw error;
  }
  if (!Value.Check(RunFile, run) || !isSameProcess(run.pid, run.process)) throw runlakeError('NOT_RUNNING', { folder });
  return {
    pid: run.pid,
    startedAt: run.started_at,
    url: run.url,
    clickhouseUrl: run.clickhouse_url,
    databaseUrl: run.database_url,
  };
}
