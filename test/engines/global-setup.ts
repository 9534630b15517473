import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { openDataFolder } from '../../infra/embedded/data-folder.ts';
import { startEmbedded } from '../../infra/embedded/start.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import { loadStackSettings } from '../stack/stack-settings.ts';
import { startDedicatedShards } from './own-shards.ts';
import { type EngineAddresses, serveAddresses } from './serve-addresses.ts';
import { makeTemplate } from './template.ts';

/** Logs why an engine crashed, which fails the tests of other suites. */
const logger = createLogger('error', 'test-engines');

/**
 * Starts one real ClickHouse and one real Postgres for the test run when the first test requests them. With
 * RUNLAKE_STACK_CLICKHOUSE_SHARDS=2, ClickHouse is a cluster of two servers.
 */
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
    const { clickhouseShards } = loadStackSettings();
    const shards =
      clickhouseShards > 1 ? await startDedicatedShards(join(path, 'shards'), clickhouseShards, logger) : undefined;
    const {
      clickhouseUrl = '',
      databaseUrl = '',
      stop,
    } = await startEmbedded({
      folder,
      needs: { clickhouse: shards === undefined, database: true },
      // Without this option, a DROP DATABASE spends five times as long on disk syncs as in Postgres, and every suite
      // drops one database.
      disableFsync: true,
      logger,
    });
    const engines = { clickhouseUrl, databaseUrl, ...shards?.addresses };
    const template = await makeTemplate(engines);
    const addresses: EngineAddresses = { ...engines, template };
    return {
      addresses,
      async stop() {
        await Promise.all([stop(), shards?.stop()]);
        await folder.close();
        remove();
      },
    };
  } catch (error) {
    remove();
    throw error;
  }
}
