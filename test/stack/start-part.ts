import { randomBytes } from 'node:crypto';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { BoundedLog } from '../../infra/embedded/child-program.ts';
import { findFreePorts, isPortInUse, withFreePorts } from '../../infra/embedded/free-port.ts';
import { type EngineExit, type EngineProcess, superviseEngine } from '../../infra/embedded/supervise-engine.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { Installation, LaunchOptions, Part, PartValues } from './part.ts';
import { portVariable } from './stack-settings.ts';

export interface RunningPart {
  readonly values: PartValues;
  /** Resolves when the part has ended permanently. Never rejects. */
  readonly exited: Promise<EngineExit>;
  stop(): Promise<void>;
}

const logBytes = 20 * 1024 * 1024;

/**
 * Starts a part in a new folder; restarts it with the same data and ports if it exits unexpectedly. Resolves when the
 * part is ready. Its output goes to `<folder>/<name>.log`.
 *
 * @param port client port; 0 picks a free port.
 * @throws STACK_PORT_IN_USE; ENGINE_START_FAILED with the server's error message. The process has exited then.
 */
export async function startPart(
  part: Part,
  options: {
    readonly folder: string;
    readonly installation: Installation;
    readonly port: number;
    readonly logger: Logger;
  },
): Promise<RunningPart> {
  const { folder, installation, port, logger } = options;
  const secrets = new Map<string, string>();
  const secret = (name: string) => {
    const made = secrets.get(name) ?? randomBytes(24).toString('base64url');
    secrets.set(name, made);
    return made;
  };
  const file = new BoundedLog(join(folder, `${part.name}.log`), logBytes);
  const log = (line: string) => file.write(line);
  const first: { options?: LaunchOptions } = {};
  const launchFirst = async (ports: readonly number[]): Promise<EngineProcess> => {
    // The files of an earlier attempt contain its ports.
    rmSync(join(folder, part.name), { recursive: true, force: true });
    const next = { folder, installation, ports, secret, log, logger };
    const process = await part.launch(next);
    first.options = next;
    return process;
  };
  const launch = async (): Promise<EngineProcess> => {
    if (first.options) return part.launch(first.options);
    if (port === 0) return withFreePorts(part.portCount, launchFirst);
    if (await isPortInUse(port)) {
      throw runlakeError('STACK_PORT_IN_USE', { part: part.title, port, variable: portVariable(part.name) });
    }
    return launchFirst([port, ...(await findFreePorts(part.portCount - 1))]);
  };
  mkdirSync(folder, { recursive: true });
  const engine = await superviseEngine(part.title, launch, logger);
  return { values: first.options ? part.values(first.options) : {}, exited: engine.exited, stop: () => engine.stop() };
}
