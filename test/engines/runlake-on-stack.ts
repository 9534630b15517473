import { randomBytes } from 'node:crypto';
import { useServers } from '../runlake-process.ts';
import { freshStores } from './stores.ts';

/** Every runlake that a test starts stands on the native stack's servers, with databases, topics and queues of its own. */
useServers(async () => {
  const stores = await freshStores({ migrated: false });
  return {
    environment: {
      RUNLAKE_CLICKHOUSE_URL: stores.clickhouseUrl,
      RUNLAKE_DATABASE_URL: stores.databaseUrl,
      RUNLAKE_SECRET_KEY: randomBytes(24).toString('base64url'),
      ...stores.environment,
    },
    release: () => stores.close(),
  };
});
