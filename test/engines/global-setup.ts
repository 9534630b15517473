import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { openDataFolder } from '../../infra/embedded/data-folder.ts';
import { startEmbedded } from '../../infra/embedded/start.ts';

declare module 'vitest' {
  interface ProvidedContext {
    engines: { readonly clickhouseUrl: string; readonly databaseUrl: string };
  }
}

/** One real ClickHouse and one real Postgres for the whole test run, in a folder that goes with it. */
export default async function setup({ provide }: TestProject): Promise<() => Promise<void>> {
  const path = mkdtempSync(join(tmpdir(), 'runlake-test-'));
  const remove = () => rmSync(path, { recursive: true, force: true });
  try {
    const folder = await openDataFolder(path);
    const engines = await startEmbedded({ folder, needs: { clickhouse: true, database: true } });
    provide('engines', { clickhouseUrl: engines.clickhouseUrl ?? '', databaseUrl: engines.databaseUrl ?? '' });
    return async () => {
      await engines.stop();
      await folder.close();
      remove();
    };
  } catch (error) {
    remove();
    throw error;
  }
}
