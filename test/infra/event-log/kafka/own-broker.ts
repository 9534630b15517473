import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findFreePorts } from '../../../../infra/embedded/free-port.ts';
import type { EngineProcess } from '../../../../infra/embedded/supervise-engine.ts';
import { logger } from '../../../silent-logger.ts';
import { kafka } from '../../../stack/parts/kafka.ts';
import { loadStackSettings } from '../../../stack/stack-settings.ts';
import { openTools } from '../../../stack/tools.ts';
import { suspendProcess } from '../../suspended-process.ts';

/** A separate broker that a test may freeze and kill. */
export interface DedicatedBroker {
  readonly brokers: string;
  /** Suspends the process: connections stay open without responses, as on a stalled network. */
  freeze(frozen: boolean): Promise<void>;
  kill(): Promise<void>;
  /** Restarts it with its data and port. */
  start(): Promise<void>;
  remove(): Promise<void>;
}

export async function startDedicatedBroker(): Promise<DedicatedBroker> {
  const folder = mkdtempSync(join(tmpdir(), 'runlake-kafka-'));
  const installation = await kafka.install(openTools(loadStackSettings(), () => {}));
  const ports = await findFreePorts(2);
  const options = {
    folder,
    installation,
    ports,
    secret: () => 'abcdefghijklmnopqrstuvwxyz',
    log: () => {},
    logger,
  };
  let running: EngineProcess | undefined = await kafka.launch(options);
  const signal = (name: NodeJS.Signals) => process.kill(readPid(folder), name);
  return {
    brokers: `127.0.0.1:${ports[0]}`,
    async freeze(frozen) {
      if (frozen) await suspendProcess(readPid(folder));
      else signal('SIGCONT');
    },
    async kill() {
      signal('SIGKILL');
      await running?.exited;
      running = undefined;
    },
    async start() {
      running ??= await kafka.launch(options);
    },
    async remove() {
      if (running) {
        signal('SIGKILL');
        await running.exited;
      }
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

function readPid(folder: string): number {
  return (JSON.parse(readFileSync(join(folder, 'kafka', 'process.json'), 'utf8')) as { pid: number }).pid;
}
