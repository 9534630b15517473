import { createServer } from 'node:http';
import type { TestProject } from 'vitest/node';
import { listenOnLoopback } from '../infra/listen-on-loopback.ts';
import { loadStackSettings } from '../stack/stack-settings.ts';
import { readStackState, type StackState } from '../stack/stack-state.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** URL at which test files request the addresses of the engines. */
    enginesUrl: string;
    /** Parts of the native stack; empty if it is not running. */
    stackParts: StackState['parts'];
  }
}

export interface EngineAddresses {
  readonly clickhouseUrl: string;
  /** Set if `clickhouseUrl` lists the servers of a cluster. */
  readonly clickhouseCluster?: string;
  readonly databaseUrl: string;
  /** Set if tests run on the native stack. */
  readonly redisUrl?: string;
  readonly kafkaBrokers?: string;
  readonly schemaRegistryUrl?: string;
  /** Name of the template databases with this release's schema; see `template.ts`. */
  readonly template?: string;
}

/** Returns the state of the native stack, if one is running. */
export const runningStack = (): StackState | undefined => readStackState(loadStackSettings().folder);

/** Returns whether suites of the project `stack` can run on it. */
export function canHoldSuites(): boolean {
  const parts = runningStack()?.parts;
  return parts?.clickhouse?.status === 'up' && parts.postgres?.status === 'up';
}

/** Serves the engine addresses to the test files of a project; the first request starts or finds the engines. */
export async function serveAddresses(
  { provide }: TestProject,
  find: () => Promise<EngineAddresses>,
): Promise<() => void> {
  let found: Promise<EngineAddresses> | undefined;
  const server = createServer(async (_request, response) => {
    try {
      found ??= find();
      response.end(JSON.stringify(await found));
    } catch (error) {
      response.writeHead(500).end(error instanceof Error ? error.message : String(error));
    }
  });
  const port = await listenOnLoopback(server);
  provide('enginesUrl', `http://127.0.0.1:${port}/`);
  provide('stackParts', runningStack()?.parts ?? {});
  return () => {
    server.closeAllConnections();
    server.close();
  };
}
