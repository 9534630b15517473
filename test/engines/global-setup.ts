import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { openDataFolder } from '../../infra/embedded/data-folder.ts';
import { startEmbedded } from '../../infra/embedded/start.ts';
import { type EngineAddresses, serveAddresses } from './serve-addresses.ts';
import { makeTemplate } from './template.ts';

/** One real ClickHouse and one real Postgres for the test run, started when the first test requests them. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  let engines: ReturnType<typeof startEngines> | undefined;
  const close = await serveAddresses(project, async () => {
    engines = startEngines();
    return (await engines).addresses;
  });
  return async () => {
    close();
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
      // Without it, a DROP DATABASE spends five times as long on disk syncs as in Postgres, and suites drop one each.
      isThrowAway: true,
    });
    const template = await makeTemplate({ clickhouseUrl, databaseUrl });
    const addresses: EngineAddresses = { clickhouseUrl, databaseUrl, template };
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
