import { randomBytes } from 'node:crypto';
import { useServers } from '../runlake-process.ts';
import { openSettling } from './settling.ts';
import { openSettlingProxy } from './settling-proxy.ts';
import { freshStores } from './stores.ts';

/**
 * Runs every Runlake that a test starts on the servers of the native stack, with its own databases, topics and queues.
 * Tests that read immediately after a write reach it through a proxy that waits for the sinks.
 */
useServers(async () => {
  const stores = await freshStores();
  const proxy = await openSettlingProxy(openSettling(stores.environment));
  return {
    environment: {
      RUNLAKE_CLICKHOUSE_URL: stores.clickhouseUrl,
      RUNLAKE_DATABASE_URL: stores.databaseUrl,
      RUNLAKE_SECRET_KEY: randomBytes(24).toString('base64url'),
      ...stores.environment,
    },
    reach(url) {
      proxy.leadTo(url);
      return proxy.url;
    },
    async release() {
      await proxy.close();
      await stores.close();
    },
  };
});
