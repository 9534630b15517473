import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { openDataFolder } from '../../infra/embedded/data-folder.ts';
import { startEmbedded } from '../../infra/embedded/start.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Where test files ask for the addresses of the engines. */
    enginesUrl: string;
  }
}

export interface EngineAddresses {
  readonly clickhouseUrl: string;
  readonly databaseUrl: string;
}

/** One real ClickHouse and one real Postgres for the whole test run, started when the first test asks for them. */
export default async function setup({ provide }: TestProject): Promise<() => Promise<void>> {
  let engines: ReturnType<typeof startEngines> | undefined;
  const server = createServer(async (_request, response) => {
    try {
      engines ??= startEngines();
      response.end(JSON.stringify((await engines).addresses));
    } catch (error) {
      response.writeHead(500).end(error instanceof Error ? error.message : String(error));
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  provide('enginesUrl', `http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  return async () => {
    server.closeAllConnections();
    server.close();
    await (await engines?.catch(() => undefined))?.stop();
  };
}

async function startEngines() {
  const path = mkdtempSync(join(tmpdir(), 'runlake-test-'));
  const remove = () => rmSync(path, { recursive: true, force: true });
  try {
    const folder = await openDataFolder(path);
    const {
      clickhouseUrl = '',
      databaseUrl = '',
      stop,
    } = await startEmbedded({
      folder,
      needs: { clickhouse: true, database: true },
    });
    const addresses: EngineAddresses = { clickhouseUrl, databaseUrl };
    return {
      addresses,
      async stop() {
        await stop();
        await folder.close();
        remove();
      },
    };
  } catch (error) {
    remove();
    throw error;
  }
}
