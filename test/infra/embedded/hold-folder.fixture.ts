/**
 * A separate process that keeps a data folder open, with or without engines, until its parent ends it. Arguments: the
 * folder; `engines` or nothing. Sends one message: the addresses, or the error code.
 */
import { loadConfig } from '../../../infra/config/load.ts';
import { openDataFolder } from '../../../infra/embedded/data-folder.ts';
import { startEmbedded } from '../../../infra/embedded/start.ts';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';

const [path = '', what] = process.argv.slice(2);
const startsEngines = what === 'engines';
// Exit if the parent is killed.
process.on('disconnect', () => process.exit(1));
try {
  const folder = await openDataFolder(path);
  const engines = await startEmbedded({ folder, needs: { clickhouse: startsEngines, database: startsEngines } });
  const { clickhouseUrl = '', databaseUrl = '' } = engines;
  const addresses = { url: 'http://127.0.0.1:1984', clickhouseUrl, databaseUrl, graphCode: undefined };
  folder.writeRunFile(addresses, loadConfig({}).config);
  process.on('SIGTERM', async () => {
    await engines.stop();
    await folder.close();
    process.exit(0);
  });
  process.send?.({ clickhouseUrl, databaseUrl });
} catch (error) {
  process.send?.({ error: isRunlakeError(error) ? error.code : String(error) });
}
