import { join } from 'node:path';
import pg from 'pg';
import { findBinaries } from '../../../infra/embedded/postgres/binaries.ts';
import { user } from '../../../infra/embedded/postgres/cluster.ts';
import { startPostgres } from '../../../infra/embedded/postgres/start-postgres.ts';
import { readFileIfExists, writePrivateFile } from '../../../infra/embedded/private-file.ts';
import type { Part } from '../part.ts';

const title = 'Postgres';

/** The embedded Postgres of the npm package, run as a separate server. */
export const postgres: Part = {
  name: 'postgres',
  title,
  portCount: 1,
  async install() {
    findBinaries();
    return {};
  },
  async launch({ folder, ports: [port = 0], secret, logger }) {
    // The embedded Postgres reads its password from this file.
    const file = join(folder, 'postgres.password');
    if (readFileIfExists(file) === undefined) writePrivateFile(file, `${secret('postgres')}\n`);
    const engine = await startPostgres({ folder, port, logger });
    return { exited: engine.exited.then(({ reason }) => reason), stop: () => engine.stop() };
  },
  values: ({ ports, secret }) => ({ url: `postgres://${user}:${secret('postgres')}@127.0.0.1:${ports[0]}/runlake` }),
  async check(values) {
    const client = new pg.Client({ connectionString: values.url, connectionTimeoutMillis: 5_000 });
    client.on('error', () => {});
    try {
      await client.connect();
      await client.query('SELECT 1');
      return 'ready';
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    } finally {
      await client.end().catch(() => {});
    }
  },
  exports: (values) => ({ RUNLAKE_DATABASE_URL: values.url ?? '' }),
};
